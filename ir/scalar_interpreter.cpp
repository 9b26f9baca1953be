// See scalar_interpreter.h. One small function per (primitive, dtype), chosen once when a program is made ready.
#include "ir/scalar_interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/error.h"
#include "ir/float16.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

using Slot = std::uint64_t;

template <class T> T from_slot(Slot bits) {
  if constexpr (std::is_same_v<T, bool>) return (bits & 0xff) != 0;
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

template <class T, auto F> Slot unary(Slot a, Slot, Slot) { return constant_bits<T>(F(from_slot<T>(a))); }
template <class T, auto F> Slot binary(Slot a, Slot b, Slot) {
  return constant_bits<T>(F(from_slot<T>(a), from_slot<T>(b)));
}
template <class T, auto F> Slot compare(Slot a, Slot b, Slot) { return F(from_slot<T>(a), from_slot<T>(b)) ? 1 : 0; }

// Integers wrap: they are computed as 64-bit unsigned numbers and cut to their width, which C++20 defines.
template <class T> T wrap(std::uint64_t wide) { return static_cast<T>(wide); }
template <class T> constexpr std::uint64_t widen(T value) { return static_cast<std::uint64_t>(value); }
template <class T> constexpr unsigned kWidth = 8u * sizeof(T);

template <class T> T integer_divide(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return wrap<T>(0 - widen(a));
  return static_cast<T>(a / b);
}
template <class T> T integer_remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <class T> bool shift_in_range(T b) {
  if constexpr (std::is_signed_v<T>)
    if (b < 0) return false;
  return widen(b) < kWidth<T>;
}
template <class T> T shift_left(T a, T b) { return shift_in_range(b) ? wrap<T>(widen(a) << b) : T(0); }
template <class T> T shift_right(T a, T b) {
  if (shift_in_range(b)) return static_cast<T>(a >> b);
  if constexpr (std::is_signed_v<T>) return a < 0 ? T(-1) : T(0);
  return 0;
}
template <class T> T multiply_high(T a, T b) {
  using Wide = std::conditional_t<sizeof(T) == 8, unsigned __int128,
                                  std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
  return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> kWidth<T>);
}

template <class T> PrimFunction integer_function(Prim prim) {
  switch (prim) {
    case Prim::add: return binary<T, [](T a, T b) { return wrap<T>(widen(a) + widen(b)); }>;
    case Prim::sub: return binary<T, [](T a, T b) { return wrap<T>(widen(a) - widen(b)); }>;
    case Prim::mul: return binary<T, [](T a, T b) { return wrap<T>(widen(a) * widen(b)); }>;
    case Prim::div: return binary<T, integer_divide<T>>;
    case Prim::rem: return binary<T, integer_remainder<T>>;
    case Prim::neg: return unary<T, [](T a) { return wrap<T>(0 - widen(a)); }>;
    case Prim::abs: return unary<T, [](T a) { return a < T(0) ? wrap<T>(0 - widen(a)) : a; }>;
    case Prim::bit_and: return binary<T, [](T a, T b) { return static_cast<T>(a & b); }>;
    case Prim::bit_or: return binary<T, [](T a, T b) { return static_cast<T>(a | b); }>;
    case Prim::bit_xor: return binary<T, [](T a, T b) { return static_cast<T>(a ^ b); }>;
    case Prim::bit_not: return unary<T, [](T a) { return static_cast<T>(~a); }>;
    case Prim::shl: return binary<T, shift_left<T>>;
    case Prim::shr: return binary<T, shift_right<T>>;
    case Prim::mul_high:
      if constexpr (std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::int32_t> ||
                    std::is_same_v<T, std::uint64_t>)
        return binary<T, multiply_high<T>>;
      return nullptr;
    default: return nullptr;
  }
}

template <class T> PrimFunction boolean_function(Prim prim) {
  switch (prim) {
    case Prim::bit_and: return binary<T, [](T a, T b) { return a && b; }>;
    case Prim::bit_or: return binary<T, [](T a, T b) { return a || b; }>;
    case Prim::bit_xor: return binary<T, [](T a, T b) { return a != b; }>;
    case Prim::bit_not: return unary<T, [](T a) { return !a; }>;
    default: return nullptr;
  }
}

template <class T> Slot fused_multiply_add(Slot a, Slot b, Slot c) {
  return constant_bits<T>(std::fma(from_slot<T>(a), from_slot<T>(b), from_slot<T>(c)));
}
template <class T> PrimFunction floating_function(Prim prim) {
  switch (prim) {
    case Prim::add: return binary<T, [](T a, T b) { return a + b; }>;
    case Prim::sub: return binary<T, [](T a, T b) { return a - b; }>;
    case Prim::mul: return binary<T, [](T a, T b) { return a * b; }>;
    case Prim::div: return binary<T, [](T a, T b) { return a / b; }>;
    case Prim::rem: return binary<T, [](T a, T b) { return std::fmod(a, b); }>;
    case Prim::neg: return unary<T, [](T a) { return -a; }>;
    case Prim::abs: return unary<T, [](T a) { return std::fabs(a); }>;
    case Prim::fma: return fused_multiply_add<T>;
    case Prim::sqrt: return unary<T, [](T a) { return std::sqrt(a); }>;
    case Prim::floor: return unary<T, [](T a) { return std::floor(a); }>;
    case Prim::ceil: return unary<T, [](T a) { return std::ceil(a); }>;
    case Prim::trunc: return unary<T, [](T a) { return std::trunc(a); }>;
    case Prim::rint: return unary<T, [](T a) { return std::nearbyint(a); }>;
    default: return nullptr;
  }
}

template <class T> PrimFunction ordered_function(Prim prim) {
  switch (prim) {
    case Prim::min: return binary<T, [](T a, T b) { return a < b ? a : b; }>;
    case Prim::max: return binary<T, [](T a, T b) { return b < a ? a : b; }>;
    case Prim::eq: return compare<T, [](T a, T b) { return a == b; }>;
    case Prim::ne: return compare<T, [](T a, T b) { return a != b; }>;
    case Prim::lt: return compare<T, [](T a, T b) { return a < b; }>;
    case Prim::le: return compare<T, [](T a, T b) { return a <= b; }>;
    default: break;
  }
  if constexpr (std::is_same_v<T, bool>)
    return boolean_function<T>(prim);
  else if constexpr (std::is_floating_point_v<T>)
    return floating_function<T>(prim);
  else
    return integer_function<T>(prim);
}

/// visit_compute plus f16, bf16 and small dtypes.
template <class F> bool visit_real(DType t, F&& f) {
  if (t == DType::f16) return f.template operator()<Float16>(), true;
  if (t == DType::bf16) return f.template operator()<BFloat16>(), true;
  if (visit_small(t, f)) return true;
  return visit_compute(t, f);
}
template <class T> constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// A double that rounds to 16 bits as the integer itself would: bits that do not fit are gathered in the lowest one.
template <class T> double double_for_narrowing(T value) {
  if constexpr (sizeof(T) == 8 && std::is_integral_v<T>) {
    if (value <= T(1) << 53 && (std::is_unsigned_v<T> || value >= wrap<T>(0 - (widen(T(1)) << 53))))
      return static_cast<double>(value);
    const T kept = static_cast<T>(value >> 11), sticky = (value & 0x7ff) != 0 ? 1 : 0;
    return std::ldexp(static_cast<double>(kept | sticky), 11);
  } else {
    return static_cast<double>(value);
  }
}

template <class To, class From> To saturating(From x) {
  if (x != x) return 0;
  // Limits as powers of two, which both floating types hold exactly.
  const From end = std::ldexp(From(1), std::numeric_limits<To>::digits);
  if (x >= end) return std::numeric_limits<To>::max();
  if (x <= (std::is_signed_v<To> ? -end : From(0))) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}

template <class To, class From> To converted(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (kIsHalf<From> || kIsSmallFloat<From>)
    return converted<To>(to_float(x));
  else if constexpr (kIsSmallInteger<From>)
    return converted<To>(to_integer(x));
  else if constexpr (std::is_same_v<To, bool>)
    return x != From(0);
  else if constexpr (std::is_same_v<To, Float16>)
    return to_float16(double_for_narrowing(x));
  else if constexpr (std::is_same_v<To, BFloat16>)
    return to_bfloat16(double_for_narrowing(x));
  else if constexpr (kIsSmallFloat<To>)
    return to_small_float<To>(double_for_narrowing(x));
  else if constexpr (kIsSmallInteger<To> && std::is_floating_point_v<From>)
    return {std::clamp(saturating<typename SmallIntegerOf<To>::Wide>(x), kSmallestOf<To>, kLargestOf<To>)};
  else if constexpr (kIsSmallInteger<To>)
    return to_small_integer<To>(static_cast<typename SmallIntegerOf<To>::Wide>(x));
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>)
    return saturating<To>(x);
  else
    return static_cast<To>(x);
}
template <class To, class From> Slot convert_function(Slot a, Slot, Slot) {
  return constant_bits<To>(converted<To>(from_slot<From>(a)));
}

Slot select_function(Slot condition, Slot b, Slot c) { return (condition & 0xff) != 0 ? b : c; }
Slot bitcast_function(Slot a, Slot, Slot) { return a; }
Slot position_function(Slot a, Slot b, Slot) {
  const auto given = from_slot<std::int64_t>(a), size = from_slot<std::int64_t>(b);
  const std::int64_t at = given < 0 ? wrap<std::int64_t>(a + b) : given;
  return at >= 0 && at < size ? static_cast<Slot>(at) : 0;
}

}  // namespace

PrimFunction prim_function(Prim prim, DType type, DType operand) {
  if (!kStoredReal.has(type) || !kStoredReal.has(operand)) return nullptr;
  PrimFunction found = nullptr;
  switch (prim) {
    case Prim::select: return type == operand ? select_function : nullptr;
    case Prim::position: return type == DType::i64 && operand == DType::i64 ? position_function : nullptr;
    case Prim::bitcast: return byte_size(type) == byte_size(operand) ? bitcast_function : nullptr;
    case Prim::convert:
      visit_real(type,
                 [&]<class To>() { visit_real(operand, [&]<class From>() { found = convert_function<To, From>; }); });
      return found;
    default: break;
  }
  const bool compares = prim == Prim::eq || prim == Prim::ne || prim == Prim::lt || prim == Prim::le;
  if (type != (compares ? DType::boolean : operand)) return nullptr;
  visit_compute(operand, [&]<class T>() { found = ordered_function<T>(prim); });
  return found;
}

std::uint64_t convert_slot(DType from, DType to, std::uint64_t bits) {
  const PrimFunction function = prim_function(Prim::convert, to, from);
  if (function == nullptr)
    throw_internal("no conversion from " + std::string(name(from)) + " to " + std::string(name(to)));
  return function(bits, 0, 0);
}

std::uint64_t load_slot(DType dtype, const void* element) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, byte_size(dtype));
  return dtype == DType::boolean ? static_cast<std::uint64_t>(bits != 0) : bits;
}
void store_slot(DType dtype, void* element, std::uint64_t bits) { std::memcpy(element, &bits, byte_size(dtype)); }

std::vector<ScalarStep> scalar_steps(const ScalarProgram& program) {
  std::vector<ScalarStep> steps;
  for (const Instr& instr : program.instrs()) {
    ScalarStep step;
    const auto slot = [](ValueId id) { return id == kNoValue ? 0 : id; };
    step.a = slot(instr.a), step.b = slot(instr.b), step.c = slot(instr.c);
    if (operand_count(instr.prim) > 0 && instr.prim != Prim::gather && instr.prim != Prim::guarded_input) {
      const ValueId typed = instr.prim == Prim::select ? instr.b : instr.a;
      step.function = prim_function(instr.prim, instr.type, program[typed].type);
      if (step.function == nullptr)
        throw_internal("primitive " + std::string(name(instr.prim)) + " is not defined for " +
                       std::string(name(program[typed].type)) + " giving " + std::string(name(instr.type)));
    }
    steps.push_back(step);
  }
  return steps;
}

FormulaInterpreter::FormulaInterpreter(const Formula& formula)
    : steps_(scalar_steps(formula.program)),
      results_(formula.results),
      slots_(formula.program.size()),
      out_(formula.results.size()) {
  for (ValueId i = 0; i < formula.program.size(); ++i) {
    const Instr& instr = formula.program[i];
    if (instr.prim == Prim::parameter)
      parameters_.emplace_back(i, instr.index);
    else if (instr.prim == Prim::constant)
      slots_[i] = instr.bits;
    else
      computed_.push_back(i);
  }
}

std::span<const std::uint64_t> FormulaInterpreter::operator()(std::span<const std::uint64_t> parameters) {
  for (const auto& [value, index] : parameters_) slots_[value] = parameters[index];
  for (const ValueId i : computed_) {
    const ScalarStep& step = steps_[i];
    slots_[i] = step.function(slots_[step.a], slots_[step.b], slots_[step.c]);
  }
  for (std::size_t i = 0; i < results_.size(); ++i) out_[i] = slots_[results_[i]];
  return out_;
}

}  // namespace fermata

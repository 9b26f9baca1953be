// See narrowed_kernel.h.
#include "codegen_cpu/narrowed_kernel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "ir/instr_operands.h"

namespace fermata {
namespace {

using Number = __int128;

/// Values that something may have. Ranges of 64-bit types have products that fit.
struct Range {
  Number least, most;
  bool operator==(const Range&) const = default;
  bool has(Number x) const { return least <= x && x <= most; }
  bool is_in(const Range& other) const { return other.least <= least && most <= other.most; }
  bool is_one() const { return least == most; }
  bool has_sign() const { return least < 0; }
};

unsigned width_of(DType t) { return static_cast<unsigned>(8 * byte_size(t)); }
bool is_number(DType t) { return is_integer(t) || t == DType::boolean; }

Range all_of(DType t) {
  if (t == DType::boolean) return {0, 1};
  const unsigned width = width_of(t);
  if (is_signed(t)) return {-(Number{1} << (width - 1)), (Number{1} << (width - 1)) - 1};
  return {0, (Number{1} << width) - 1};
}
DType integer_of(unsigned width, bool has_sign) {
  switch (width) {
    case 8: return has_sign ? DType::i8 : DType::u8;
    case 16: return has_sign ? DType::i16 : DType::u16;
    case 32: return has_sign ? DType::i32 : DType::u32;
    default: return has_sign ? DType::i64 : DType::u64;
  }
}
/// The integer of this width that holds all of a range.
std::optional<DType> holder_of(const Range& range, unsigned width) {
  for (const bool has_sign : {true, false})
    if (range.is_in(all_of(integer_of(width, has_sign)))) return integer_of(width, has_sign);
  return std::nullopt;
}
Number number_of(DType t, std::uint64_t bits) {
  if (t == DType::boolean) return bits & 1;
  const unsigned spare = 64 - width_of(t);
  return is_signed(t) ? Number{static_cast<std::int64_t>(bits << spare) >> spare} : Number{bits << spare >> spare};
}
std::uint64_t bits_of(DType t, Number x) {
  const auto bits = static_cast<std::uint64_t>(x);
  return width_of(t) == 64 ? bits : bits & ((std::uint64_t{1} << width_of(t)) - 1);
}

/// The least range of 2^k - 1 that has a number.
Number mask_above(Number most) {
  Number mask = 0;
  while (mask < most) mask = mask << 1 | 1;
  return mask;
}
Range hull(std::initializer_list<Number> corners) { return {std::min(corners), std::max(corners)}; }
Range merged(const Range& x, const Range& y) { return {std::min(x.least, y.least), std::max(x.most, y.most)}; }
Number magnitude(const Range& x) { return std::max(-x.least, x.most); }

Range quotients(const Range& x, const Range& y) {
  if (y.has(0) || !y.is_one()) {
    const Number most = magnitude(x);
    return {x.has_sign() || y.has_sign() ? -most : 0, most};
  }
  return hull({x.least / y.least, x.most / y.least});
}
Range remainders(const Range& x, const Range& y) {
  Number most = magnitude(x);
  if (!y.has(0)) most = std::min(most, magnitude(y) - 1);
  return {x.has_sign() ? -most : 0, x.most > 0 ? most : 0};
}
Range of_bits(Prim prim, const Range& x, const Range& y) {
  if (prim == Prim::bit_and) {
    if (!x.has_sign() && !y.has_sign()) return {0, std::min(x.most, y.most)};
    if (!x.has_sign()) return {0, x.most};
    if (!y.has_sign()) return {0, y.most};
  }
  const Number most = mask_above(std::max({x.most, y.most, -x.least - 1, -y.least - 1}));
  if (x.has_sign() || y.has_sign()) return {-most - 1, most};
  return {prim == Prim::bit_or ? std::max(x.least, y.least) : 0, most};
}
Range compared(Prim prim, const Range& x, const Range& y) {
  constexpr Range kNever{0, 0}, kAlways{1, 1}, kPerhaps{0, 1};
  const bool is_apart = x.most < y.least || y.most < x.least, is_same = x.is_one() && x == y;
  switch (prim) {
    case Prim::eq: return is_apart ? kNever : is_same ? kAlways : kPerhaps;
    case Prim::ne: return is_apart ? kAlways : is_same ? kNever : kPerhaps;
    case Prim::lt: return x.most < y.least ? kAlways : x.least >= y.most ? kNever : kPerhaps;
    default: return x.most <= y.least ? kAlways : x.least > y.most ? kNever : kPerhaps;
  }
}
Range shifted(const Range& x, const Range& count, unsigned width) {  // to the right
  if (count.is_one() && count.least >= 0 && count.least < width)
    return {x.least >> static_cast<int>(count.least), x.most >> static_cast<int>(count.least)};
  return {std::min<Number>(x.least, 0), std::max<Number>(x.most, 0)};
}

/// Primitives of which the lowest bits of a result depend on those of the operands alone.
bool is_of_low_bits(Prim prim) {
  switch (prim) {
    case Prim::add:
    case Prim::sub:
    case Prim::mul:
    case Prim::neg:
    case Prim::bit_and:
    case Prim::bit_or:
    case Prim::bit_xor:
    case Prim::bit_not:
    case Prim::shl:
    case Prim::select: return true;
    default: return false;
  }
}
/// Primitives that are as good in any type that holds the operands and the result.
bool is_of_values(Prim prim) {
  switch (prim) {
    case Prim::div:
    case Prim::rem:
    case Prim::min:
    case Prim::max:
    case Prim::abs:
    case Prim::shr:
    case Prim::eq:
    case Prim::ne:
    case Prim::lt:
    case Prim::le: return true;
    default: return false;
  }
}
bool divides(Prim prim) { return prim == Prim::div || prim == Prim::rem; }
bool is_shift(Prim prim) { return prim == Prim::shl || prim == Prim::shr; }

class Narrowing {
 public:
  Narrowing(const Kernel& kernel, const std::uint64_t* numbers)
      : kernel_(kernel), program_(kernel.program), used_bits_(program_.size(), 0), type_(program_.size()) {
    for (const Instr& instr : program_.instrs()) ranges_.push_back(range_of(instr, numbers));
    find_used_bits();
  }

  std::optional<Kernel> result() {
    unsigned least = 8, widest = 8;
    for (const Access& access : kernel_.accesses)
      if (!access.address_only && access.dtype != DType::boolean) least = std::max(least, width_of(access.dtype));
    for (const Reduction& reduction : kernel_.reductions)
      for (const DType t : reduction.types) least = std::max(least, width_of(t));
    for (ValueId id = 0; id < program_.size(); ++id) {
      if (used_bits_[id] == 0 || program_[id].type == DType::boolean || is_known(id)) continue;
      unsigned& width = is_integer(program_[id].type) ? widest : least;
      width = std::max(width, width_of(program_[id].type));
    }
    for (width_ = least; width_ < widest; width_ *= 2)
      if (fits()) return written();
    width_ = 64;
    return fits() && divides_by_numbers() ? std::optional(written()) : std::nullopt;
  }

 private:
  bool is_known(ValueId id) const { return is_number(program_[id].type) && ranges_[id].is_one(); }

  Range range_of(const Instr& instr, const std::uint64_t* numbers) const {
    if (!is_number(instr.type)) return {0, 0};
    const Range all = all_of(instr.type);
    const Range found = range_of(instr, all, numbers);
    return found.is_in(all) ? found : all;  // what does not fit wraps
  }
  Range range_of(const Instr& instr, const Range& all, const std::uint64_t* numbers) const {
    const auto one = [&](std::uint64_t bits) {
      const Number x = number_of(instr.type, bits);
      return Range{x, x};
    };
    if (instr.prim == Prim::constant) return one(instr.bits);
    if (instr.prim == Prim::scalar && is_integer(instr.type)) return one(numbers[instr.index]);
    if (instr.a == kNoValue) return all;
    const ValueId first = instr.prim == Prim::select ? instr.b : instr.a,
                  second = instr.prim == Prim::select ? instr.c : instr.b;
    if (!is_number(program_[first].type)) return all;
    if (const ValueId chosen = chosen_by(instr); chosen != kNoValue) return ranges_[chosen];
    const Range x = ranges_[first], y = second != kNoValue ? ranges_[second] : Range{0, 0};
    switch (instr.prim) {
      case Prim::add: return {x.least + y.least, x.most + y.most};
      case Prim::sub:
        if (const ValueId divisor = divisor_of_rest(instr); divisor != kNoValue) return remainders(x, ranges_[divisor]);
        return {x.least - y.most, x.most - y.least};
      case Prim::mul: {
        constexpr Number kLarge = Number{1} << 62;  // products of more may not fit here
        if (magnitude(x) > kLarge || magnitude(y) > kLarge) return all;
        return hull({x.least * y.least, x.least * y.most, x.most * y.least, x.most * y.most});
      }
      case Prim::neg: return {-x.most, -x.least};
      case Prim::abs: return {x.has(0) ? 0 : std::min(x.least < 0 ? -x.most : x.least, magnitude(x)), magnitude(x)};
      case Prim::div: return quotients(x, y);
      case Prim::rem: return remainders(x, y);
      case Prim::min: return {std::min(x.least, y.least), std::min(x.most, y.most)};
      case Prim::max: return {std::max(x.least, y.least), std::max(x.most, y.most)};
      case Prim::bit_and:
      case Prim::bit_or:
      case Prim::bit_xor: return of_bits(instr.prim, x, y);
      case Prim::eq:
      case Prim::ne:
      case Prim::lt:
      case Prim::le: return compared(instr.prim, x, y);
      case Prim::bit_not:
        if (instr.type == DType::boolean) return {1 - x.most, 1 - x.least};
        return is_signed(instr.type) ? Range{-x.most - 1, -x.least - 1} : Range{all.most - x.most, all.most - x.least};
      case Prim::shl:
        if (!y.is_one() || y.least < 0 || y.least >= 32 || magnitude(x) > (Number{1} << 64)) return all;
        return {x.least * (Number{1} << static_cast<int>(y.least)), x.most * (Number{1} << static_cast<int>(y.least))};
      case Prim::shr: return shifted(x, y, width_of(instr.type));
      case Prim::select: return merged(x, y);
      case Prim::convert:
        if (instr.type == DType::boolean) return x.has(0) ? (x.is_one() ? x : all) : Range{1, 1};
        return x;
      default: return all;
    }
  }

  /// The operand that a select gives if its condition is known.
  ValueId chosen_by(const Instr& instr) const {
    if (instr.prim != Prim::select || !is_known(instr.a)) return kNoValue;
    return ranges_[instr.a].least != 0 ? instr.b : instr.c;
  }
  /// Of a - (a / b) * b, which rounds towards minus infinity: b.
  ValueId divisor_of_rest(const Instr& sub) const {
    const Instr& product = program_[sub.b];
    if (product.prim != Prim::mul) return kNoValue;
    for (const auto& [quotient, divisor] : {std::pair(product.a, product.b), std::pair(product.b, product.a)}) {
      const Instr& q = program_[quotient];
      if (q.prim == Prim::div && q.a == sub.a && q.b == divisor) return divisor;
    }
    return kNoValue;
  }

  void use(ValueId id, unsigned bits) { used_bits_[id] = std::max(used_bits_[id], bits); }

  /// How many of the lowest bits of each value matter.
  void find_used_bits() {
    for (const Store& store : kernel_.stores) use(store.value, width_of(program_[store.value].type));
    for (const Reduction& reduction : kernel_.reductions)
      for (const ValueId id : reduction.lifted) use(id, width_of(program_[id].type));
    for (ValueId id = static_cast<ValueId>(program_.size()); id-- > 0;) {
      const Instr& instr = program_[id];
      if (used_bits_[id] == 0 || is_known(id)) continue;
      if (const ValueId chosen = chosen_by(instr); chosen != kNoValue) {
        use(chosen, used_bits_[id]);
        continue;
      }
      for_operands(instr, [&](ValueId operand) { use(operand, used_bits_of(instr, id, operand)); });
    }
  }
  unsigned used_bits_of(const Instr& instr, ValueId id, ValueId operand) const {
    const unsigned all = width_of(program_[operand].type);
    if (!is_integer(instr.type) || !is_integer(program_[operand].type)) return all;
    unsigned used = used_bits_[id];
    if (instr.prim == Prim::bit_and) {
      const ValueId other = operand == instr.a ? instr.b : instr.a;
      if (is_known(other) && ranges_[other].least >= 0)
        used = std::min(used, static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(ranges_[other].least))));
      used = std::max(used, 1u);
    }
    const bool is_count = is_shift(instr.prim) && operand == instr.b;
    const bool passes = (is_of_low_bits(instr.prim) && !is_count) || instr.prim == Prim::convert;
    return passes ? std::min(used, all) : all;
  }

  /// Chooses types that are no wider than width_; false if there are none.
  bool fits() {
    for (ValueId id = 0; id < program_.size(); ++id) {
      const Instr& instr = program_[id];
      type_[id] = instr.type;
      if (used_bits_[id] == 0 || !is_number(instr.type)) continue;
      if (is_integer(instr.type) && width_of(instr.type) > width_) {
        const auto holder = holder_of(ranges_[id], width_);
        if (!holder && used_bits_[id] > width_) return false;
        type_[id] = holder.value_or(integer_of(width_, false));
      }
      if (!fits(instr, id)) return false;
    }
    return true;
  }
  bool is_narrowed(ValueId id) const { return type_[id] != program_[id].type; }
  /// Whether an instruction can be computed on operands as they are now.
  bool fits(const Instr& instr, ValueId id) const {
    if (is_known(id)) return true;
    bool has_narrow = is_narrowed(id);
    for_operands(instr, [&](ValueId operand) { has_narrow = has_narrow || is_narrowed(operand); });
    if (!has_narrow) return true;
    if (instr.prim == Prim::convert) return is_number(program_[instr.a].type) || !is_narrowed(id);
    if (instr.prim == Prim::shl)
      return is_known(instr.b) && ranges_[instr.b].least >= 0 && ranges_[instr.b].least < width_;
    if (is_of_low_bits(instr.prim)) return true;
    return is_of_values(instr.prim) && common_type(instr, id).has_value();
  }
  /// The type that holds all operands, and the result if it is of their type.
  std::optional<DType> common_type(const Instr& instr, ValueId id) const {
    Range all = ranges_[instr.a];
    if (instr.b != kNoValue) all = merged(all, ranges_[instr.b]);
    if (is_integer(instr.type)) all = merged(all, ranges_[id]);
    // Without a sign a division needs no rounding towards zero.
    if (divides(instr.prim) && !all.has_sign() && all.most <= all_of(integer_of(width_, false)).most)
      return integer_of(width_, false);
    return holder_of(all, width_);
  }

  bool divides_by_numbers() const {
    for (ValueId id = 0; id < program_.size(); ++id) {
      const Instr& instr = program_[id];
      if (used_bits_[id] == 0 || !is_integer(instr.type) || is_known(id)) continue;
      if (!divides(instr.prim) && !is_shift(instr.prim)) continue;
      if (is_known(instr.b) && program_[instr.b].prim != Prim::constant) return true;
    }
    return false;
  }

  Kernel written() {
    Kernel kernel = kernel_;
    kernel.program = {};
    std::vector<ValueId> at(program_.size(), kNoValue);
    const auto in_type = [&](ValueId id, DType type) {
      const Instr& made = kernel.program[at[id]];
      if (made.type == type) return at[id];
      if (made.prim == Prim::constant && is_integer(type))
        return kernel.program.constant(type, bits_of(type, number_of(made.type, made.bits)));
      return kernel.program.add({.prim = Prim::convert, .type = type, .a = at[id]});
    };
    for (ValueId id = 0; id < program_.size(); ++id) {
      Instr instr = program_[id];
      if (used_bits_[id] == 0) continue;
      if (is_known(id)) {
        at[id] = kernel.program.constant(type_[id], bits_of(type_[id], ranges_[id].least));
        continue;
      }
      if (const ValueId chosen = chosen_by(instr); chosen != kNoValue) {
        at[id] = in_type(chosen, type_[id]);
        continue;
      }
      DType operands = instr.a != kNoValue ? program_[instr.a].type : instr.type;
      if (is_of_low_bits(instr.prim) && is_narrowed(id)) {
        operands = type_[id];
      } else if (is_of_values(instr.prim) && is_number(operands) && width_of(operands) > width_) {
        operands = common_type(instr, id).value();
      }
      if (instr.prim == Prim::convert) {
        const ValueId from = at[instr.a];
        at[id] = kernel.program[from].type == type_[id]
                     ? from
                     : kernel.program.add({.prim = Prim::convert, .type = type_[id], .a = from});
        continue;
      }
      const bool converts = is_of_low_bits(instr.prim) || is_of_values(instr.prim);
      const auto operand = [&](ValueId x, bool is_condition) {
        if (x == kNoValue) return x;
        return converts && !is_condition ? in_type(x, operands) : at[x];
      };
      const bool selects = instr.prim == Prim::select;
      if (selects && !is_narrowed(id)) operands = instr.type;
      instr.a = operand(instr.a, selects), instr.b = operand(instr.b, false), instr.c = operand(instr.c, false);
      if (is_integer(instr.type) && converts) instr.type = operands;
      at[id] = kernel.program.add(instr);
      if (is_integer(program_[id].type)) at[id] = in_type(id, type_[id]);
    }
    for (Store& store : kernel.stores) store.value = at[store.value];
    for (Reduction& reduction : kernel.reductions)
      for (ValueId& id : reduction.lifted) id = at[id];
    return kernel;
  }

  const Kernel& kernel_;
  const ScalarProgram& program_;
  std::vector<Range> ranges_;        // of integers and bool
  std::vector<unsigned> used_bits_;  // 0: the value is not used
  std::vector<DType> type_;          // as which a value is computed now
  unsigned width_ = 64;
};

}  // namespace

std::optional<Kernel> narrowed_kernel(const Kernel& kernel, const std::uint64_t* numbers) {
  if (has_positions(kernel)) return std::nullopt;  // those that nothing depends on any more have to fail all the same
  return Narrowing(kernel, numbers).result();
}

bool may_narrow(const Kernel& kernel) {
  const auto counts = [](const Instr& instr) {
    return is_integer(instr.type) && (is_of_low_bits(instr.prim) || is_of_values(instr.prim));
  };
  if (!std::ranges::any_of(kernel.program.instrs(), counts)) return false;
  const std::vector<std::uint64_t> numbers(kernel.scalars.size(), 1);
  return narrowed_kernel(kernel, numbers.data()).has_value();
}

}  // namespace fermata

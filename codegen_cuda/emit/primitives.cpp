// See primitives.h. Integers are computed in unsigned types of at least 32 bits and cut, so that they wrap.
#include "codegen_cuda/emit/primitives.h"

#include <fmt/format.h>

#include <bit>

#include "ir/error.h"
#include "ir/scalar_interpreter.h"
#include "ir/small_dtypes.h"

namespace fermata::gpu {
namespace {

using fmt::format;

bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }

std::string wrapped(DType type, char op, const std::string& a, const std::string& b) {
  const std::string_view t = value_type(type), wide = byte_size(type) == 8 ? "u64" : "u32";
  return format("({})(({}){} {} ({}){})", t, wide, a, op, wide, b);
}

std::string saturated(DType to, DType from, const std::string& a) {
  const unsigned bits = 8u * static_cast<unsigned>(byte_size(to));
  const bool with_sign = is_signed(to);
  const unsigned digits = with_sign ? bits - 1 : bits;
  const std::uint64_t highest = digits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << digits) - 1;
  const std::string_view t = value_type(to), f = value_type(from);
  const std::string lowest = with_sign ? format("({})(-(i64){}ll - 1)", t, highest) : format("({})0", t);
  // A power of two, which both floating types hold: written as a product of two that integers hold.
  const std::string end = digits == 64 ? format("(({})4294967296.0 * ({})4294967296.0)", f, f)
                                       : format("({}){}ull", f, std::uint64_t{1} << digits);
  return format("fm_saturate<{0}, {1}>({2}, {3}, {4}, ({0}){5}ull)", t, f, a, end, lowest, highest);
}

/// The constants of a small format, as template arguments of the prelude's functions.
std::string format_of(DType dtype) {
  const SmallFloatFormat& f = small_float(dtype);
  return format("<{}, {}, {}, {}, {}, {}, {}, {}, {}>", f.magnitude_bits, f.fraction_bits, f.bias, f.largest,
                f.infinity, f.first_nan, f.overflow, f.nan, f.one_zero ? 1 : 0);
}
/// The prelude's function from or to a small format.
std::string small_function(std::string_view direction, DType dtype) {
  if (small_float(dtype).is_scale) return format("fm_{}_scale", direction);
  return format("fm_{}_small{}", direction, format_of(dtype));
}
/// i8 or u8 of what the lowest bits stand for, which is also the value modulo 2^bits.
std::string small_integer(DType dtype, const std::string& a) {
  return format("fm_small_integer<{}, {}>({})", value_type(arithmetic_dtype(dtype)), bit_width(dtype), a);
}

std::string to_narrow(DType to, DType from, const std::string& a) {
  const std::string round = is_small_float(to) ? small_function("to", to)
                            : to == DType::f16 ? "fm_to_f16"
                                               : "fm_to_bf16";
  if (from == DType::f32) return format("{}({})", round, a);
  if (from == DType::f64) return format("{}(fm_odd({}))", round, a);
  if (from == DType::boolean || byte_size(from) <= 2) return format("{}((f32){})", round, a);
  if (byte_size(from) == 4) return format("{}(fm_odd((f64){}))", round, a);
  return format("{}(fm_odd(fm_sticky({})))", round, a);
}

std::string converted(DType to, DType from, const std::string& a) {
  if (to == from) return a;
  if (is_small_float(from)) return converted(to, DType::f32, format("{}({})", small_function("from", from), a));
  if (is_small(from)) return converted(to, arithmetic_dtype(from), small_integer(from, a));
  if (is_small(to) && !is_small_float(to)) {
    const std::string wide = converted(arithmetic_dtype(to), from, a);
    if (!is_floating(from)) return small_integer(to, wide);
    return format("fm_small_clamp<{}, {}>({})", value_type(arithmetic_dtype(to)), bit_width(to), wide);
  }
  if (to == DType::boolean) return is_half(from) ? format("(({} & 0x7fff) != 0)", a) : format("({} != 0)", a);
  if (is_half(from))
    return converted(to, DType::f32, format("{}({})", from == DType::f16 ? "fm_from_f16" : "fm_from_bf16", a));
  if (is_half(to) || is_small_float(to)) return to_narrow(to, from, a);
  if (is_integer(to) && is_floating(from)) return saturated(to, from, a);
  return format("({}){}", value_type(to), a);
}

std::string bitcast(DType to, DType from, const std::string& a) {
  if (to == from) return a;
  if (to == DType::boolean) return format("({} != 0)", a);
  if (from == DType::boolean) return format("({})(u8){}", value_type(to), a);
  return format("fm_bits<{}>({})", value_type(to), a);
}

std::string multiply_high(DType type, const std::string& a, const std::string& b) {
  if (type == DType::u64) return format("fm_mulhi({}, {})", a, b);
  const char* const wide = type == DType::u32 ? "u64" : "i64";
  return format("({})((({}){} * ({}){}) >> 32)", value_type(type), wide, a, wide, b);
}

std::string of_integers(Prim prim, DType type, const std::string& a, const std::string& b) {
  const std::string_view t = value_type(type);
  switch (prim) {
    case Prim::add: return wrapped(type, '+', a, b);
    case Prim::sub: return wrapped(type, '-', a, b);
    case Prim::mul: return wrapped(type, '*', a, b);
    case Prim::div: return format("fm_div<{}>({}, {})", t, a, b);
    case Prim::rem: return format("fm_rem<{}>({}, {})", t, a, b);
    case Prim::mul_high: return multiply_high(type, a, b);
    case Prim::neg: return format("({})(0 - (u64){})", t, a);
    case Prim::abs: return is_signed(type) ? format("({0} < 0 ? ({1})(0 - (u64){0}) : {0})", a, t) : a;
    case Prim::bit_and: return format("({})({} & {})", t, a, b);
    case Prim::bit_or: return format("({})({} | {})", t, a, b);
    case Prim::bit_xor: return format("({})({} ^ {})", t, a, b);
    case Prim::bit_not: return type == DType::boolean ? format("!{}", a) : format("({})~{}", t, a);
    case Prim::shl: return format("fm_shl<{}>({}, {})", t, a, b);
    case Prim::shr: return format("fm_shr<{}>({}, {})", t, a, b);
    default: return {};
  }
}

std::string of_floats(Prim prim, const std::string& a, const std::string& b, const std::string& c) {
  switch (prim) {
    case Prim::add: return format("{} + {}", a, b);
    case Prim::sub: return format("{} - {}", a, b);
    case Prim::mul: return format("{} * {}", a, b);
    case Prim::div: return format("{} / {}", a, b);
    case Prim::rem: return format("fm_fmod({}, {})", a, b);
    case Prim::neg: return format("-{}", a);
    case Prim::abs: return format("fm_abs({})", a);
    case Prim::fma: return format("fm_fma({}, {}, {})", a, b, c);
    case Prim::sqrt: return format("fm_sqrt({})", a);
    case Prim::floor: return format("fm_floor({})", a);
    case Prim::ceil: return format("fm_ceil({})", a);
    case Prim::trunc: return format("fm_trunc({})", a);
    case Prim::rint: return format("fm_rint({})", a);
    default: return {};
  }
}

}  // namespace

std::string_view value_type(DType dtype) {
  if (dtype == DType::boolean) return "bool";
  if (is_small(dtype)) return is_small_float(dtype) ? "u8" : name(arithmetic_dtype(dtype));
  return is_half(dtype) ? "u16" : name(dtype);
}

std::string_view memory_type(DType dtype) { return dtype == DType::boolean ? "u8" : value_type(dtype); }

std::string constant(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::boolean: return bits != 0 ? "true" : "false";
    case DType::f32: {
      const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      // Small integers and fractions are easier on the eye.
      if (value == 1 || value == 0.5f || value == 2)
        return format("{}f", value == 0.5f ? "0.5" : value == 1 ? "1.0" : "2.0");
      return format("fm_bits<f32>({:#x}u)", bits);
    }
    case DType::f64: return format("fm_bits<f64>({:#x}ull)", bits);
    default: return format("({}){:#x}ull", value_type(dtype), bits);
  }
}

std::string primitive(Prim prim, DType type, DType operand, const std::string& a, const std::string& b,
                      const std::string& c) {
  if (prim_function(prim, type, operand) == nullptr)
    throw UnsupportedError(
        2101, format_error(2101, "UnsupportedError",
                           format("cannot compile a kernel: {} of {} giving {}", name(prim), name(operand), name(type)),
                           {}, {}));
  switch (prim) {
    case Prim::select: return format("{} ? {} : {}", a, b, c);
    case Prim::convert: return converted(type, operand, a);
    case Prim::bitcast: return bitcast(type, operand, a);
    case Prim::min: return format("{0} < {1} ? {0} : {1}", a, b);
    case Prim::max: return format("{1} < {0} ? {0} : {1}", a, b);
    case Prim::eq: return format("{} == {}", a, b);
    case Prim::ne: return format("{} != {}", a, b);
    case Prim::lt: return format("{} < {}", a, b);
    case Prim::le: return format("{} <= {}", a, b);
    default: return is_floating(operand) ? of_floats(prim, a, b, c) : of_integers(prim, operand, a, b);
  }
}

}  // namespace fermata::gpu

// See fermata/dtypes.h.
#include "fermata/dtypes.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "dispatch/pointwise.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

[[noreturn]] void refuse(std::string_view function, DType dtype, std::string_view wanted, Location where) {
  throw DTypeError(1101, format_error(1101, "DTypeError",
                                      fmt::format("{}: {} is not {}", function, name(dtype), wanted), {}, where));
}
[[noreturn]] void throw_no_common(DType a, DType b, Location where) {
  throw DTypeError(
      1102, format_error(1102, "DTypeError",
                         fmt::format("result_type: no dtype holds both {} and {}", name(a), name(b)), {}, where));
}

template <class T> FloatInfo info_of(DType dtype) {
  using L = std::numeric_limits<T>;
  return {sizeof(T) * 8, L::epsilon(), L::max(), L::lowest(), L::min(), dtype};
}

}  // namespace

DType result_type(std::initializer_list<DType> dtypes, Location where) {
  if (dtypes.size() == 0) throw ValueError(1318, format_error(1318, "ValueError", "result_type: no dtypes", {}, where));
  DType common = *dtypes.begin();
  for (const DType t : dtypes) {
    const auto next = promote(common, t);
    if (!next) throw_no_common(common, t, where);
    common = *next;
  }
  return common;
}

DType result_type(const Operand& lhs, const Operand& rhs) {
  for (const Operand* o : {&lhs, &rhs})
    if (o->is_tensor()) require_defined("result_type", o->tensor(), lhs.where());
  const Operand* const operands[] = {&lhs, &rhs};
  return promoted_dtype(operands, [&](DType a, DType b) { throw_no_common(a, b, lhs.where()); });
}

bool can_cast(DType from, DType to) { return promote(from, to) == to; }

bool isdtype(DType dtype, std::string_view kind, Location where) {
  const DTypeKind k = info(dtype).kind;
  if (kind == "bool") return k == DTypeKind::boolean;
  if (kind == "signed integer") return k == DTypeKind::signed_integer;
  if (kind == "unsigned integer") return k == DTypeKind::unsigned_integer;
  if (kind == "integral") return is_integer(dtype);
  if (kind == "real floating") return is_floating(dtype);
  if (kind == "complex floating") return is_complex(dtype);
  if (kind == "numeric") return is_integer(dtype) || is_floating(dtype) || is_complex(dtype);
  throw ValueError(1318,
                   format_error(1318, "ValueError", fmt::format("isdtype: unknown kind \"{}\"", kind), {}, where,
                                "\"bool\", \"signed integer\", \"unsigned integer\", \"integral\", \"real floating\", "
                                "\"complex floating\", \"numeric\""));
}

FloatInfo finfo(DType dtype, Location where) {
  switch (dtype) {
    case DType::f16: return {16, 0x1p-10, 65504, -65504, 0x1p-14, dtype};
    case DType::bf16: return {16, 0x1p-7, 0x1.fep127, -0x1.fep127, 0x1p-126, dtype};
    case DType::f32:
    case DType::c64: return info_of<float>(DType::f32);
    case DType::f64:
    case DType::c128: return info_of<double>(DType::f64);
    default: break;
  }
  if (!is_small_float(dtype)) refuse("finfo", dtype, "a floating dtype", where);
  const SmallFloatFormat& f = small_float(dtype);
  FloatInfo info{static_cast<int>(bit_width(dtype)),
                 std::ldexp(1.0, -static_cast<int>(f.fraction_bits)),
                 0,
                 0,
                 std::ldexp(1.0, f.least_exponent()),
                 dtype};
  visit_small(dtype, [&]<class T>() {
    if constexpr (kIsSmallFloat<T>) info.max = static_cast<double>(to_float(T{f.largest}));
  });
  info.min = -info.max;
  if (f.is_scale) info.min = info.smallest_normal = std::ldexp(1.0, -f.bias);
  return info;
}

IntegerInfo iinfo(DType dtype, Location where) {
  if (!is_integer(arithmetic_dtype(dtype))) refuse("iinfo", dtype, "an integer dtype", where);
  const int bits = static_cast<int>(bit_width(dtype));
  if (!is_signed(arithmetic_dtype(dtype))) return {bits, ~std::uint64_t{0} >> (64 - bits), 0, dtype};
  return {bits, static_cast<std::uint64_t>(INT64_MAX >> (64 - bits)), INT64_MIN >> (64 - bits), dtype};
}

}  // namespace fermata

// See operand.h.
#include "runtime/operand.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "ir/error.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

template <class T> T saturate(double v) {
  if (v != v) return 0;
  // The upper bound as a double may round up to 2^63, so it is compared with >=.
  if (v >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (v <= static_cast<double>(std::numeric_limits<T>::lowest())) return std::numeric_limits<T>::lowest();
  return static_cast<T>(v);
}

/// Does an integer dtype hold an integer?
bool fits(const Scalar& scalar, DType dtype) {
  if (!is_integer(arithmetic_dtype(dtype))) return true;
  const bool huge = scalar.kind == DTypeKind::unsigned_integer && scalar.integer < 0;  // above the largest i64
  if (scalar.kind != DTypeKind::signed_integer && scalar.kind != DTypeKind::unsigned_integer) return true;
  bool inside = false;
  visit_small(dtype, [&]<class T>() {
    if constexpr (kIsSmallInteger<T>)
      inside = !huge && scalar.integer >= kSmallestOf<T> && scalar.integer <= kLargestOf<T>;
  });
  visit_compute(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      inside = huge ? std::is_same_v<T, std::uint64_t> : std::in_range<T>(scalar.integer);
  });
  return inside;
}

}  // namespace

std::uint64_t scalar_bits(const Scalar& scalar, DType dtype) {
  std::uint64_t bits = 0;
  visit_compute(scalar_dtype(dtype), [&]<class T>() {
    T value;
    if constexpr (std::is_same_v<T, bool>)
      value = scalar.kind == DTypeKind::floating ? scalar.real != 0 : scalar.integer != 0;
    else if constexpr (std::is_floating_point_v<T>)
      value = static_cast<T>(scalar.as_double());
    else
      value = scalar.kind == DTypeKind::floating ? saturate<T>(scalar.real) : static_cast<T>(scalar.integer);
    bits = constant_bits(value);
  });
  visit_small(dtype, [&]<class T>() {
    if constexpr (kIsSmallInteger<T>)
      if (scalar.kind == DTypeKind::floating) {
        using Wide = typename SmallIntegerOf<T>::Wide;
        bits = constant_bits(std::clamp(saturate<Wide>(scalar.real), kSmallestOf<T>, kLargestOf<T>));
      }
  });
  return bits;
}

std::uint64_t checked_scalar_bits(std::string_view function, const Scalar& scalar, DType dtype,
                                  std::source_location where) {
  if (!fits(scalar, dtype)) [[unlikely]] {
    const std::string number = scalar.kind == DTypeKind::unsigned_integer
                                   ? std::to_string(static_cast<std::uint64_t>(scalar.integer))
                                   : std::to_string(scalar.integer);
    throw ValueError(
        1329, format_error(1329, "ValueError",
                           std::string(function) + ": " + number + " does not fit " + std::string(name(dtype)), {},
                           where, "cast the tensor to a wider dtype with astype()"));
  }
  return scalar_bits(scalar, dtype);
}

}  // namespace fermata

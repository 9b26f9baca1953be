// See operand.h.
#include "runtime/operand.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace fermata {
namespace {

template <class T> T saturate(double v) {
  if (v != v) return 0;
  // The upper bound as a double may round up to 2^63, so it is compared with >=.
  if (v >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  if (v <= static_cast<double>(std::numeric_limits<T>::lowest())) return std::numeric_limits<T>::lowest();
  return static_cast<T>(v);
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
  return bits;
}

}  // namespace fermata

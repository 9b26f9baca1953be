// What reductions start from.
#pragma once

#include <cmath>

#include "runtime/operand.h"

namespace fermata {

/// The number of a real dtype or bool that no other is above, or below: infinite ones of floats.
inline Scalar extreme_number(DType t, bool highest) {
  const std::size_t spare_bits = 64 - 8 * byte_size(t);
  if (is_floating(t)) return highest ? HUGE_VAL : -HUGE_VAL;
  if (t == DType::boolean) return highest;
  if (info(t).kind == DTypeKind::unsigned_integer) return highest ? ~std::uint64_t{0} >> spare_bits : std::uint64_t{0};
  return (highest ? INT64_MAX : INT64_MIN) >> spare_bits;
}

}  // namespace fermata

// What reductions start from.
#pragma once

#include <cmath>

#include "runtime/operand.h"

namespace fermata {

/// The number of a dtype that no other is above, or below: infinite ones of floats. Complex numbers have no order, and
/// get those of their parts.
inline Scalar extreme_number(DType t, bool highest) {
  if (t == DType::boolean) return highest;
  if (!is_integer(t)) return highest ? HUGE_VAL : -HUGE_VAL;
  const std::size_t spare_bits = 64 - 8 * byte_size(t);
  if (info(t).kind == DTypeKind::unsigned_integer) return highest ? ~std::uint64_t{0} >> spare_bits : std::uint64_t{0};
  return (highest ? INT64_MAX : INT64_MIN) >> spare_bits;
}

}  // namespace fermata

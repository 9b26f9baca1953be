// See operand_in_order.h.
#include "codegen_cpu/irregular/operand_in_order.h"

#include <cstdlib>

namespace fermata {

bool lies_across(const TensorView& x) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 14, kLongAxis = 16;
  unsigned last = x.rank;
  while (last > 0 && x.sizes[last - 1] == 1) --last;
  if (last < 2 || (x.strides[last - 1] >= -1 && x.strides[last - 1] <= 1) || x.element_count() < kLarge) return false;
  bool has_unit = false;
  for (unsigned i = 0; i + 1 < last; ++i) {
    if (x.sizes[i] != 1 && x.strides[i] == 0) return false;
    has_unit = has_unit || (std::abs(x.strides[i]) == 1 && x.sizes[i] >= kLongAxis);
  }
  return has_unit;
}

}  // namespace fermata

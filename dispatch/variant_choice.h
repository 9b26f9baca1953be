// Selection among the variants of a kernel.
#pragma once

#include <span>

#include "dispatch/kernel_table.h"

namespace fermata {

/// Returns the cheapest callable variant that fits the arguments, the first in a tie, and its cost; null if none fits.
inline const KernelVariant* cheapest_variant(std::span<const KernelVariant> variants, DType operand,
                                             const CallArgs& args, double* least = nullptr) {
  const KernelVariant* best = nullptr;
  double best_cost = 0;
  for (const KernelVariant& v : variants) {
    if (v.call == nullptr || !v.dtypes.has(operand) || (v.fits != nullptr && !v.fits(args))) continue;
    const double cost = v.cost != nullptr ? v.cost(args) : 0;
    if (best == nullptr || cost < best_cost) best = &v, best_cost = cost;
  }
  if (least != nullptr) *least = best_cost;
  return best;
}

}  // namespace fermata

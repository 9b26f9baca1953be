// Recognizes row kernels that can be evaluated online, as part of a matrix product: softmax and similar functions.
//
// The kernel computes a weight for each element of a row, and stores the weight multiplied or divided by a factor of
// the whole row: e / sum(e). Weighted sums can then be accumulated before the row is complete, and scaled at its end.
// If weights are exp(x - base) and the base is the row's maximum, weights use the running maximum, and the partial sums
// are rescaled whenever it grows (Milakov and Gimelshein, 2018).
//
// The match is on the computed program: the maximum may be missing, and anything may precede the weight (a scale, a
// mask, a bias) or follow it as a factor of the row.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/kernel.h"

namespace fermata::gpu {

struct OnlineRows {
  std::uint16_t total;                           // the reduction that sums the weights
  bool has_top;                                  // whether the base is computed from a maximum reduction,
  std::uint16_t top;                             // and which
  ValueId weight;                                // of an element
  ValueId exponent = kNoValue, base = kNoValue;  // with a top: the weight is exp(exponent - base), up to rounding
  std::vector<ValueId> elements;  // computed per element, in order: up to the exponent, or else the weight
  struct Factor {
    Prim prim;  // mul or div
    ValueId by;
  };
  std::vector<Factor> factors;  // from the weight to the stored value, up to rounding
  std::uint16_t result;         // the access that is stored to
};

std::optional<OnlineRows> online_rows(const Kernel& kernel, const KernelSchedule& schedule);

}  // namespace fermata::gpu

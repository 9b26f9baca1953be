// A row kernel whose rows can be taken part by part, with what a product makes of them: softmax and what is like it.
//
// The kernel gives each element of a row a weight, and stores the weight times or over what the whole row says: e /
// sum(e). Sums of weighted values can then be made while the row is still under way, and finished at its end. Where
// weights are exp(x - base) and the base is known at the end of the row only, since it is the row's maximum, weights
// are taken with the maximum so far, and what was added up is rescaled whenever that grows (Milakov and Gimelshein,
// 2018).
//
// Found by what the program computes: the maximum may be left out, and anything may come before the weight (a scale, a
// mask, a bias) or after it that is a factor of the row.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/kernel.h"

namespace fermata::gpu {

struct OnlineRows {
  std::uint16_t total;                           // the reduction that adds up the weights
  bool has_top;                                  // whether there is a reduction whose maximum the base is made of,
  std::uint16_t top;                             // and which
  ValueId weight;                                // of an element
  ValueId exponent = kNoValue, base = kNoValue;  // with a top: the weight is exp(exponent - base), rounding aside
  std::vector<ValueId> elements;  // to compute at each element, in order: up to the exponent, or else the weight
  struct Factor {
    Prim prim;  // mul or div
    ValueId by;
  };
  std::vector<Factor> factors;  // from the weight to what is stored, rounding aside
  std::uint16_t result;         // the access that is stored to
};

std::optional<OnlineRows> online_rows(const Kernel& kernel, const KernelSchedule& schedule);

}  // namespace fermata::gpu

// Recorded nodes against the double-precision reference, each on its own.
//
// Every node is computed, and its value compared with what the reference makes of the values of its operands as they
// are. No error adds up along the graph, so tolerances are those of single ops, and an op that jumps (floor, a
// comparison, argmax) sees exact inputs.
#pragma once

#include <span>
#include <string>

#include "runtime/tensor.h"

namespace fermata::testing {

/// Computes everything pending under the tensors. Says what is wrong with which node; empty if nothing is.
std::string check_against_reference(std::span<const Tensor> tensors);

}  // namespace fermata::testing

// What a loop adds up from step to step, as the gradient of a weight: parts of such a sum may stay on the processes
// that have made them until the loop is over, and are combined once.
//
// A step gives for a carried value a linear function of it and of further terms, and nothing else reads it. Where each
// process carries a part of the sum, and each term is a part or is counted by one process, the sum over the processes
// stays what one process alone would carry.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace fermata {

/// By value of a function: where it is part of a sum that is left to the caller.
struct SumsOfSteps {
  /// Of the linear functions from terms to results: the mesh axes along which each process has a part; none for others.
  std::vector<unsigned> axes;
  /// Of terms that nothing else reads: the mesh axes along which they may be left as parts.
  std::vector<unsigned> terms;
  /// Of those: the output that they are added to.
  std::vector<std::size_t> output;
  /// Whether it is a carried value, of which each process has its part.
  std::vector<bool> is_carried;
};

/// By carried value, of which there are `carries`: whether a step only adds to it.
std::vector<bool> find_sums_of_steps(const Graph& step, std::size_t carries);

/// The values behind such sums. `axes` are mesh axes by output of the function; those without any are no sums.
SumsOfSteps sums_of_steps(const Graph& step, const std::vector<unsigned>& axes);

}  // namespace fermata

// Where a long backward pass is computed early: between two turns of the loop that the tape came from.
//
// The bound on pending nodes would cut it too, but one chain at a time, and wherever each of them gets too long. Here
// all gradients that are under way are computed together, always after the same call site and the same number of turns,
// so that the turns of a loop meet one plan.
#pragma once

#include <cstdint>
#include <vector>

#include "frontend/transforms/autograd/autograd_tape.h"

namespace fermata {

class BackwardCuts {
 public:
  /// `depth`: of the tape. Nothing is cut where the whole pass stays below the bound, nor in a function that is being
  /// compiled.
  explicit BackwardCuts(std::uint64_t depth);
  ~BackwardCuts();
  BackwardCuts(const BackwardCuts&) = delete;
  BackwardCuts& operator=(const BackwardCuts&) = delete;

  /// Called after each node of the tape: whether the gradients at hand should be computed now.
  bool is_due(const GradNode& visited);

 private:
  bool find_site(std::uint64_t site);

  const bool active_, before_;
  std::uint64_t site_ = 0;              // after which it is cut; 0 until it is found
  std::uint32_t turns_ = 0, seen_ = 0;  // per cut, and since the last one
  std::vector<std::uint64_t> visited_;  // sites since the last cut
};

}  // namespace fermata

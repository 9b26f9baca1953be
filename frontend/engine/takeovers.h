// Results that a run of a plan writes over its operands (docs/adr/016).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/function_ref.h"
#include "runtime/plan.h"
#include "runtime/tensor.h"
#include "runtime/walk.h"

namespace fermata {

struct LeafBuffer;

/// The leaves whose buffers a run takes for its results: nobody but the run can ask for them, now or later.
class Takeovers {
 public:
  /// Chooses among those that the plan allows.
  void choose(const Walk& walk, const Plan& plan, std::span<const Overwrite> allowed) {
    all_.clear();
    if (!allowed.empty()) choose_some(walk, plan, allowed);
  }
  /// Shows others that the leaves are about to be written over, unless one of them may be reading already or is about
  /// to do the same. As with the publishing of nodes, sequential consistency makes one of the two see the other.
  void announce(FunctionRef<bool()> is_alone);
  /// Moves the buffers from the leaves to the results.
  void take(std::span<LeafBuffer> leaves, std::span<StoragePtr> results) const;
  /// After a run that failed: back to the leaves, whose values are lost where the run has written over one.
  void give_back(bool overwritten, std::span<StoragePtr> results);

 private:
  struct Takeover {
    std::size_t output, place;  // in the results, and among the leaves of the plan
    Node* leaf;
    Storage* storage;
  };
  void choose_some(const Walk& walk, const Plan& plan, std::span<const Overwrite> allowed);

  std::vector<Takeover> all_;
  std::vector<bool> outputs_, places_;  // that are taken
};

}  // namespace fermata

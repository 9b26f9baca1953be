// Reuse of operand buffers for results in a plan run (docs/adr/016).
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "runtime/function_ref.h"
#include "runtime/plan.h"
#include "runtime/tensor.h"
#include "runtime/walk.h"

namespace fermata {

struct LeafBuffer;

/// The leaves whose buffers a run reuses for its results, because nothing else can read them any more.
class Takeovers {
 public:
  /// Chooses among the overwrites that the plan allows.
  void choose(const Walk& walk, const Plan& plan, std::span<const Overwrite> allowed) {
    all_.clear(), views_.clear();
    if (!allowed.empty()) choose_some(walk, plan, allowed);
  }
  /// Announces to other threads that the leaves are about to be overwritten, unless a thread `may_read` one of them or
  /// announces the same. Sequential consistency ensures that one of two threads sees the other, as in the publishing
  /// of nodes.
  void announce(FunctionRef<bool(const Node*)> may_read);
  /// Moves the buffers from the leaves to the results.
  void take(std::span<LeafBuffer> leaves, std::span<StoragePtr> results) const;
  /// After a failed run: returns the buffers to the leaves; values that the run has overwritten are lost.
  void give_back(bool overwritten, std::span<StoragePtr> results);

 private:
  struct Takeover {
    std::size_t output, place;  // index among results, and among leaves of the plan
    Node* leaf;
    Storage* storage;
  };
  /// A leaf that is a view of one of those, and read before that is written.
  struct View {
    std::size_t place;
    Node* leaf;
    Storage* storage;
  };
  bool has_views_of_this_run_alone(const Walk& walk, const Plan& plan, const Overwrite& o);
  void choose_some(const Walk& walk, const Plan& plan, std::span<const Overwrite> allowed);

  std::vector<Takeover> all_;
  std::vector<View> views_;
  std::vector<std::pair<Node*, Storage*>> announced_;
  std::vector<bool> outputs_, places_;  // already taken
};

}  // namespace fermata

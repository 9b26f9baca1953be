// The bound steps of a plan in execution order.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "runtime/steps/step.h"

namespace fermata {

using BoundStep = std::variant<BoundKernel, BoundCall, BoundBoxedCall, BoundEpilogue, BoundProductChain, BoundCallBatch,
                               BoundStart, BoundWait>;

class BoundSteps {
 public:
  struct Entry {
    std::uint32_t plan_step;  // the step of the plan that it comes from
    BoundStep step;
  };

  /// Adds the next step. Reuses the previous object at that position if it has type T, so that its lists keep their
  /// memory.
  template <class T> T& add(std::uint32_t plan_step) {
    if (count_ == entries_.size()) entries_.emplace_back();
    Entry& entry = entries_[count_++];
    entry.plan_step = plan_step;
    T* const known = std::get_if<T>(&entry.step);
    return known != nullptr ? *known : entry.step.emplace<T>();
  }
  void take_back() { --count_; }
  void start_over() { count_ = 0; }
  /// Drops the remaining steps of the previous plan.
  void finish() { entries_.resize(count_); }

  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }

 private:
  std::vector<Entry> entries_;
  std::size_t count_ = 0;
};

}  // namespace fermata

// A batch of independent calls of one op. Calls whose sizes agree run as one call of a kernel that does several at
// once: many small products then cost as much as one batched product.
#pragma once

#include <vector>

#include "runtime/steps/call_step.h"

namespace fermata {

struct CallBatchStep {
  std::vector<CallStep> calls;

  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const {
    for (const CallStep& call : calls) f(call);
  }
};

class BoundCallBatch {
 public:
  /// Takes bound calls of equal sizes.
  void take(std::vector<BoundCall> calls);
  void locate(std::span<const Node* const> records) {
    for (BoundCall& call : calls_) call.locate(records);
  }
  void run(Run& run);
  std::size_t calls() const { return calls_.size(); }
  std::string description() const { return calls_.front().description(); }
  StepWork work() const;
  template <class F> void for_each_part(F&& f) const {
    for (const BoundCall& call : calls_) call.for_each_part(f);
  }

 private:
  std::vector<BoundCall> calls_;
  std::vector<TensorView> inputs_, outputs_;  // of the current run, for all calls
};

}  // namespace fermata

// A batch of calls of one op that do not depend on each other. Those whose sizes agree run as one call of a kernel that
// does several at once: many small products then cost what one batched product does.
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
  /// Calls of equal sizes, all of them bound.
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
  std::vector<TensorView> inputs_, outputs_;  // of the run: those of all calls
};

}  // namespace fermata

// See call_batch_step.h.
#include "runtime/steps/call_batch_step.h"

#include <utility>

#include "runtime/device_run.h"
#include "runtime/steps/binding.h"
#include "runtime/steps/bound_steps.h"

namespace fermata {

void CallBatchStep::bind(const Binding& binding, BoundSteps& bound) const {
  std::vector<BoundCall> equal;
  const auto add = [&] {
    if (equal.size() == 1)
      bound.add<BoundCall>(binding.step) = std::move(equal.front());
    else
      bound.add<BoundCallBatch>(binding.step).take(std::move(equal));
    equal.clear();
  };
  for (const CallStep& step : calls) {
    BoundCall call;
    call.bind(step, binding);
    if (!equal.empty() && !equal.front().has_sizes_of(call)) add();
    equal.push_back(std::move(call));
  }
  add();
}

void BoundCallBatch::take(std::vector<BoundCall> calls) { calls_ = std::move(calls); }

StepWork BoundCallBatch::work() const {
  StepWork all = calls_.front().work();
  all.bytes *= static_cast<double>(calls_.size()), all.operations *= static_cast<double>(calls_.size());
  all.strided_bytes *= static_cast<double>(calls_.size());
  return all;
}

void BoundCallBatch::run(Run& run) {
  // The kernel is chosen for a single call, so a batch has the bits of its calls.
  CallArgs all = calls_.front().arguments(run);
  inputs_.clear(), outputs_.clear();
  for (BoundCall& call : calls_) {
    for (const BoundOperand& o : call.operands()) inputs_.push_back(o.view(run));
    outputs_.push_back(call.output().view(run));
  }
  all.inputs = inputs_, all.outputs = outputs_;
  const RunSite site{calls_.front().step().name, calls_.front().where()};
  const RunSiteGuard guard(site);
  calls_.front().kernel()(all);
}

}  // namespace fermata

// See collective_step.h.
#include "runtime/steps/collective_step.h"

#include "runtime/device_run.h"
#include "runtime/steps/binding.h"
#include "runtime/steps/bound_steps.h"

namespace fermata {

void StartStep::bind(const Binding& binding, BoundSteps& bound) const {
  bound.add<BoundStart>(binding.step).bind(*this, binding);
}
void WaitStep::bind(const Binding& binding, BoundSteps& bound) const {
  bound.add<BoundWait>(binding.step).bind(*this, binding);
}

void BoundStart::bind(const StartStep& step, const Binding& binding) {
  BoundCall::bind(step.call, binding);
  number_ = step.number;
}

void BoundStart::run(Run& run) {
  CallArgs args = arguments(run);
  std::unique_ptr<StartedCall> started;
  args.started = &started;
  const RunSite site{step().name, where()};
  const RunSiteGuard guard(site);
  kernel()(args);
  run.started.add(number_, std::move(started), step().name, where());
}

void BoundWait::bind(const WaitStep& step, const Binding& binding) {
  step_ = &step;
  locate(binding.records);
}

void BoundWait::run(Run& run) {
  const RunSite site{step_->call.name, where_};
  const RunSiteGuard guard(site);
  run.started.finish(step_->number);
}

}  // namespace fermata

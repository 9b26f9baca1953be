// The steps of a plan, as the passes make them. Binding to sizes turns each into one or more bound steps
// (runtime/steps/bound_steps.h): a composite step runs as one if the sizes allow it.
#pragma once

#include <variant>

#include "runtime/steps/call_batch_step.h"
#include "runtime/steps/call_step.h"
#include "runtime/steps/collective_step.h"
#include "runtime/steps/epilogue_step.h"
#include "runtime/steps/kernel_step.h"
#include "runtime/steps/product_chain_step.h"

namespace fermata {

using PlanStep = std::variant<KernelStep, CallStep, BoxedCallStep, EpilogueStep, ProductChainStep, CallBatchStep,
                              StartStep, WaitStep>;

/// f(part) for every KernelStep, CallStep and BoxedCallStep of a step, in the order in which they run separately.
template <class F> void for_each_part(const PlanStep& step, F&& f) {
  std::visit([&](const auto& s) { s.for_each_part(f); }, step);
}

/// f(slot) for every slot that a part reads or writes.
template <class F> void for_each_slot(const KernelStep& kernel, F&& f) {
  for (const PlanSource& s : kernel.sources) f(s.slot);
}
template <class F> void for_each_slot(const CallStep& call, F&& f) {
  for (const PlanSource& s : call.sources) f(s.slot);
  f(call.output.slot);
}

}  // namespace fermata

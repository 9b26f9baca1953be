// See captured_program.h.
#include "frontend/engine/captured_program.h"

#include <algorithm>
#include <type_traits>

#include "frontend/engine/compile_policy.h"
#include "frontend/engine/control_step.h"
#include "frontend/engine/interpreter.h"
#include "frontend/engine/profiled_plans.h"
#include "frontend/engine/program_records.h"
#include "ir/error.h"
#include "runtime/backend_memory.h"
#include "runtime/events.h"

namespace fermata {

namespace {

/// A trial is not worth its time where the calls are expected to take so many times as long as the plan.
constexpr double kHopeless = 4;
/// The calls of a program may need so much more memory than its kernels.
constexpr std::size_t kMoreMemory = std::size_t{256} << 20;

bool has_kernels(const Plan& plan) {
  bool found = false;
  for (const PlanStep& step : plan.steps)
    for_each_part(step, [&]<class Part>(const Part&) { found = found || std::is_same_v<Part, KernelStep>; });
  return found;
}

}  // namespace

void CapturedProgram::compile(const Walk& walk) {
  if (program_.nodes.empty()) return;
  entry_ = PlanCache::instance().find(walk.order[walk.outputs.back()].node->hash, walk.key);
  structure_.assign(walk.structure().begin(), walk.structure().end());
  const Plan& plan = *compile_entry(*entry_, walk);
  has_boxed_calls_ = plan.has_boxed_calls();
  has_effects_ =
      std::ranges::any_of(walk.order, [](const Walk::Entry& e) { return e.storage == nullptr && has_effect(*e.node); });
  std::vector<const Node*> records;
  records.reserve(walk.order.size());
  for (const Walk::Entry& e : walk.order) records.push_back(e.node);
  bind(kernels_, plan, records);
  if (!has_effects() && has_kernels(plan)) trial_ = trial_of_calls(*entry_, walk);
  if (trial_ != nullptr) calls_ns_ = interpretation_cost(walk);
  leaves_.reserve(plan.leaf_records.size());
  for (const std::uint32_t record : plan.leaf_records)
    leaves_.push_back(static_cast<std::uint32_t>(program_.nodes[record].leaf));
  for (const std::uint32_t i : walk.outputs)
    output_nodes_.push_back(i), output_types_.push_back(walk.order[i].node->type());
}

void CapturedProgram::bind(Form& form, const Plan& plan, std::span<const Node* const> records) const {
  form.plan = &plan;
  form.bound.bind(plan, records);
  for (std::size_t slot = 0; slot < plan.scalars.size(); ++slot) {
    const ScalarSource& s = plan.scalars[slot];
    const ProgramNode& n = program_.nodes[s.record];
    if (n.is_drawn) form.random.push_back({slot, s.index == 1 ? n.scalars[1] : 0, s.index == 0});
  }
}

void CapturedProgram::run(Runner& r, Steps steps) const {
  const Plan& plan = *kernels_.plan;
  for (std::size_t i = 0; i < r.buffers.size(); ++i) {
    StoragePtr& made = r.storage.emplace_back();
    if (r.buffers[i] != nullptr || plan.slots[plan.output_slots[i]].is_given) continue;
    made.reset(allocate_on(plan.backend, r.bound.output_bytes(i)));
    r.buffers[i] = made->data;
  }
  if (trial_ != nullptr && steps == Steps::either) return run_in_turn(r);
  run(r, kernels_, r.bound);
  for (std::size_t i = 0; has_boxed_calls_ && i < r.storage.size(); ++i)
    if (r.buffers[i] == nullptr) r.storage[i] = r.bound.take_output(i);
}

bool CapturedProgram::run_repeated(Runner& r, const Repetition& repetition) const {
  if (always_runs_calls.load(std::memory_order_relaxed)) return false;
  note(r, kernels_);
  return r.bound.run_repeated(*kernels_.plan, repetition);
}

/// Kernels or calls, whichever is faster.
void CapturedProgram::run_in_turn(Runner& r) const {
  if (always_runs_calls.load(std::memory_order_relaxed)) [[unlikely]] {
    if (run_calls(r)) return;
  }
  if (trial_->is_settled_on_plan()) return run(r, kernels_, r.bound);
  TrialTurn turn;
  turn.begin(*trial_, true);
  if (turn.runs_plan() || !run_calls(r)) run(r, kernels_, r.bound);
  turn.end();
}

/// Null if the trial has ended with the plan instead.
const CapturedProgram::Form* CapturedProgram::calls() const {
  if (const Form* done = calls_.load(std::memory_order_acquire)) return done;
  if (trial_->is_open() && calls_ns_ > kHopeless * trial_->plan_ns()) return trial_->choose_plan(), nullptr;
  const std::lock_guard lock(making_calls_);
  if (const Form* done = calls_.load(std::memory_order_acquire)) return done;
  auto made = std::make_unique<Form>();
  bind(*made, *compile_calls(*entry_, graph_of(program_, output_nodes_), backend()), ProgramRecords(program_).all());
  if (made->bound.arena_bytes() > kernels_.bound.arena_bytes() + kMoreMemory) return trial_->choose_plan(), nullptr;
  owned_calls_ = std::move(made);
  calls_.store(owned_calls_.get(), std::memory_order_release);
  return owned_calls_.get();
}

/// False if memory for the temporaries of calls is short: there are more of them.
bool CapturedProgram::run_calls(Runner& r) const {
  try {
    const Form* const form = calls();
    if (form == nullptr) return false;
    if (r.calls == nullptr) r.calls = std::make_unique<BoundPlan>(form->bound);
    run(r, *form, *r.calls);
    return true;
  } catch (const OutOfMemoryError&) {
    if (r.calls != nullptr && r.calls->has_started()) throw;
    trial_->choose_plan();
    return false;
  }
}

void CapturedProgram::note(Runner& r, const Form& form) const {
  r.plan_number = form.plan->number;
  if (wants_events()) [[unlikely]]
    note_profiled_plan(r.plan_number, [&] {
      return ProfiledPlan{graph_of(program_, output_nodes_), form.plan->backend,
                          &form == &kernels_ ? PlanForm::fused : PlanForm::calls};
    });
}

void CapturedProgram::run(Runner& r, const Form& form, BoundPlan& bound) const {
  note(r, form);
  for (const RandomScalar& s : form.random) bound.scalars()[s.slot] = s.is_key ? r.key : r.first + s.delta;
  bound.run(*form.plan, r.leaves, r.buffers, r.storage);
}

}  // namespace fermata

// See captured_program.h.
#include "frontend/engine/captured_program.h"

#include <algorithm>

#include "frontend/engine/compile_policy.h"
#include "frontend/engine/control_step.h"
#include "frontend/engine/profiled_plans.h"
#include "runtime/backend_memory.h"
#include "runtime/events.h"

namespace fermata {

void CapturedProgram::compile(const Walk& walk) {
  if (program_.nodes.empty()) return;
  entry_ = PlanCache::instance().find(walk.order[walk.outputs.back()].node->hash, walk.key);
  structure_.assign(walk.structure().begin(), walk.structure().end());
  plan_ = compile_entry(*entry_, walk);
  has_boxed_calls_ = plan_->has_boxed_calls();
  has_effects_ =
      std::ranges::any_of(walk.order, [](const Walk::Entry& e) { return e.storage == nullptr && has_effect(*e.node); });
  std::vector<const Node*> records;
  records.reserve(walk.order.size());
  for (const Walk::Entry& e : walk.order) records.push_back(e.node);
  bound_.bind(*plan_, records);
  leaves_.reserve(plan_->leaf_records.size());
  for (const std::uint32_t record : plan_->leaf_records)
    leaves_.push_back(static_cast<std::uint32_t>(program_.nodes[record].leaf));
  for (const std::uint32_t i : walk.outputs)
    output_nodes_.push_back(i), output_types_.push_back(walk.order[i].node->type());
  for (std::size_t slot = 0; slot < plan_->scalars.size(); ++slot) {
    const ScalarSource& s = plan_->scalars[slot];
    const ProgramNode& n = program_.nodes[s.record];
    if (n.is_drawn) random_.push_back({slot, s.index == 1 ? n.scalars[1] : 0, s.index == 0});
  }
}

void CapturedProgram::run(Runner& r) const {
  if (wants_events()) [[unlikely]]
    note_profiled_plan(plan_->number, [&] { return ProfiledPlan{graph_of(program_, output_nodes_), plan_->backend}; });
  for (std::size_t i = 0; i < r.buffers.size(); ++i) {
    StoragePtr& made = r.storage.emplace_back();
    if (r.buffers[i] != nullptr || plan_->slots[plan_->output_slots[i]].is_given) continue;
    made.reset(allocate_on(plan_->backend, r.bound.output_bytes(i)));
    r.buffers[i] = made->data;
  }
  r.bound.run(*plan_, r.leaves, r.buffers, r.storage);
  for (std::size_t i = 0; has_boxed_calls_ && i < r.storage.size(); ++i)
    if (r.buffers[i] == nullptr) r.storage[i] = r.bound.take_output(i);
}

}  // namespace fermata

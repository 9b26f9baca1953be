// Boxed calls of a BoundPlan: kernels over tensors, which may keep their arguments, give the buffers of their results,
// and run other plans meanwhile. What they read and give lies in buffers of its own, which live as long as somebody
// holds them.
#include "runtime/bound_plan.h"
#include "runtime/device_memory.h"

namespace fermata {

/// The buffers of what boxed calls read, but for what they are given later. Temporaries have no place in the arena
/// then.
void BoundPlan::own_slots(const Plan& plan, std::span<const StoragePtr> owners) {
  slot_owners_.resize(plan.slots.size());
  for (std::size_t i = 0; i < owners.size(); ++i) slot_buffers_[plan.output_slots[i]] = owners[i].get();
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const PlanSlot& slot = plan.slots[i];
    if (slot.kind != PlanSlot::Kind::temporary || (!slot.is_owned && !slot.is_given)) continue;
    slot_data_[i] = nullptr;
    if (slot.is_given) continue;
    slot_owners_[i].reset(allocate_on(plan.backend, slot_bytes_[i]));
    slot_data_[i] = slot_owners_[i]->data, slot_buffers_[i] = slot_owners_[i].get();
  }
}

/// Nothing is recorded of a device: a kernel may do anything.
void BoundPlan::run_with_boxed(const Plan& plan) {
  struct DropTemporaries {
    BoundPlan& bound;
    const Plan& plan;
    ~DropTemporaries() {
      for (std::size_t i = 0; i < plan.slots.size(); ++i)
        if (plan.slots[i].kind == PlanSlot::Kind::temporary) bound.slot_owners_[i].reset();
    }
  } const drop{*this, plan};
  run_steps(plan);
}

/// A call of a kernel over tensors. It may run other plans meanwhile, not this bound one.
void BoundPlan::run_boxed(const PlanStep& step, Step& b) {
  CallArgs args = prepare_call(step, b, nullptr);
  const std::uint32_t slot = step.output.slot;
  StoragePtr given;
  if (slot_data_[slot] == nullptr) args.result = &given;
  const RunSite site{step.name, b.where};
  const RunSiteGuard guard(site);
  b.kernel(args);
  if (given == nullptr) return;
  slot_data_[slot] = given->data, slot_buffers_[slot] = given.get();
  slot_owners_[slot] = std::move(given);
  set_pointers();
}

}  // namespace fermata

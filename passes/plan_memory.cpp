// See plan_memory.h.
#include "passes/plan_memory.h"

#include <algorithm>
#include <span>

#include "ir/op_traits.h"

namespace fermata {
namespace {

/// Whether what the call finds in its operands may be an error. Others can only run out of memory.
bool depends_on_values(const CallStep& step) { return traits(step.op).may_fail_on_values; }

bool depends_on_values(const KernelStep& step) { return step.may_fail(); }
bool depends_on_values(const BoxedCallStep&) { return true; }

bool may_fail(const PlanStep& step) {
  bool found = false;
  for_each_part(step, [&](const auto& part) { found = found || depends_on_values(part); });
  return found;
}

/// What finishes a step: a kernel, which may be the epilogue of a call.
struct LastKernel {
  const KernelStep* kernel = nullptr;
  const CallStep* call = nullptr;
};
LastKernel last_kernel(const EpilogueStep& step) { return {&step.epilogue, &step.call}; }
LastKernel last_kernel(const KernelStep& step) { return {&step, nullptr}; }
LastKernel last_kernel(const CallStep&) { return {}; }
LastKernel last_kernel(const CallBatchStep&) { return {}; }
LastKernel last_kernel(const StartStep&) { return {}; }
LastKernel last_kernel(const WaitStep&) { return {}; }
LastKernel last_kernel(const ProductChainStep& step) { return {step.epilogue(), &step.second()}; }
LastKernel last_kernel(const PlanStep& step) {
  return std::visit([](const auto& s) { return last_kernel(s); }, step);
}

/// Whether a step writes over its first operand and reads it nowhere but where it stays as it is.
const CallStep* step_that_updates(const PlanStep& step) {
  const auto* const call = std::get_if<CallStep>(&step);
  return call != nullptr && traits(call->op).overwrites && call->operands[0] == CallOperand{false, 0} &&
                 call->operands[1] == CallOperand{false, 1}
             ? call
             : nullptr;
}

/// The first step after the last one that may fail.
std::uint32_t first_unfailing(const Plan& plan) {
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i)
    if (may_fail(plan.steps[i])) first = i + 1;
  return first;
}

class Overwrites {
 public:
  explicit Overwrites(Plan& plan) : plan_(plan) {}

  void find() {
    for (std::uint32_t i = first_unfailing(plan_); i < plan_.steps.size(); ++i) {
      const auto [kernel, call] = last_kernel(plan_.steps[i]);
      if (kernel != nullptr && kernel->reduced == 0)
        for (const std::uint16_t store : kernel->stores)
          match(i, *kernel, kernel->sources[store], kernel->element_bytes[store], kernel->sources, call);
      if (const CallStep* const written = step_that_updates(plan_.steps[i]))
        match(i, *written, written->output, written->element_bytes[0], {written->sources.data(), 1}, nullptr);
    }
  }

 private:
  /// The operands among `operands` that the result of a part of step i may take the place of. Which of them are nobody
  /// else's is known later. `with` is a call that runs at the same time.
  void match(std::uint32_t i, const StepPart& part, const PlanSource& result, std::size_t bytes,
             std::span<const PlanSource> operands, const CallStep* with) {
    const auto output = std::ranges::find(plan_.output_slots, result.slot);
    if (output == plan_.output_slots.end() || !result.path.empty()) return;
    const auto output_number = static_cast<std::uint32_t>(output - plan_.output_slots.begin());
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const std::uint32_t slot = operands[k].slot;
      const auto leaf = std::ranges::find(plan_.leaf_slots, slot);
      if (leaf == plan_.leaf_slots.end() || part.element_bytes[k] != bytes || plan_.slots[slot].last_step != i ||
          plan_.slots[slot].is_owned)  // a kernel may have kept it
        continue;
      const auto leaf_number = static_cast<std::uint32_t>(leaf - plan_.leaf_slots.begin());
      const auto reads_elsewhere = [slot](const PlanSource& s) { return s.slot == slot && !s.path.empty(); };
      const auto reads = [slot](const PlanSource& s) { return s.slot == slot; };
      if (std::ranges::any_of(operands.first(k), reads) || std::ranges::any_of(part.sources, reads_elsewhere) ||
          std::ranges::count_if(part.sources, reads) != std::ranges::count_if(operands, reads) ||
          (with != nullptr && std::ranges::any_of(with->sources, reads)))
        continue;
      plan_.overwrites.push_back({output_number, leaf_number, i, part.record});
    }
  }

  Plan& plan_;
};

/// Whether a result has memory that a temporary may lie in, in the same order.
bool has_place_for(const Plan& plan, std::uint32_t result, std::uint32_t temporary) {
  const PlanSlot& slot = plan.slots[result];
  if (slot.channels_last != plan.slots[temporary].channels_last) return false;
  if (slot.channels_last) return true;  // a temporary of the arena: calls that give buffers read none such
  const auto output = std::ranges::find(plan.output_slots, result);
  if (output == plan.output_slots.end()) return false;
  const auto number = static_cast<std::uint32_t>(output - plan.output_slots.begin());
  const auto overwrites = [number](const Overwrite& o) { return o.output == number; };
  return std::ranges::none_of(plan.overwrites, overwrites);  // else an operand may still be read there
}

/// What elements are written into or added to, such as zeros, is made where the result of the call is to be.
void share_targets(Plan& plan) {
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
    const auto* const call = std::get_if<CallStep>(&plan.steps[i]);
    if (call == nullptr || !traits(call->op).begins_as_operand || !(call->operands[0] == CallOperand{false, 0}))
      continue;
    const PlanSource& target = call->sources[0];
    const PlanSlot& slot = plan.slots[target.slot];
    const auto reads = [&](const PlanSource& s) { return s.slot == target.slot; };
    if (!target.path.empty() || !call->output.path.empty() || slot.kind != PlanSlot::Kind::temporary ||
        slot.last_step != i || slot.is_owned || slot.is_given || slot.channels_last ||
        std::ranges::count_if(call->sources, reads) != 1 || call->source_dtypes[0] != call->output_dtype)
      continue;
    if (has_place_for(plan, call->output.slot, target.slot))
      plan.shared_places.push_back({target.slot, call->output.slot});
  }
}

/// The result of a call need not be anywhere but where its epilogue writes: half as many bytes pass through the caches.
void share_places(Plan& plan) {
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
    const auto [kernel, call] = last_kernel(plan.steps[i]);
    if (kernel == nullptr || call == nullptr || kernel->reduced != 0) continue;
    const std::uint32_t temporary = call->output.slot;
    if (plan.slots[temporary].kind != PlanSlot::Kind::temporary || plan.slots[temporary].last_step != i ||
        plan.slots[temporary].is_owned || plan.slots[temporary].is_given)
      continue;
    const auto reads = [temporary](const PlanSource& s) { return s.slot == temporary; };
    const auto source = std::ranges::find_if(kernel->sources, reads);
    if (source == kernel->sources.end() || !source->path.empty() || std::ranges::count_if(kernel->sources, reads) != 1)
      continue;
    const std::size_t bytes = kernel->element_bytes[static_cast<std::size_t>(source - kernel->sources.begin())];
    for (const std::uint16_t store : kernel->stores) {
      const PlanSource& result = kernel->sources[store];
      if (!result.path.empty() || kernel->element_bytes[store] != bytes) continue;
      if (!has_place_for(plan, result.slot, temporary)) continue;
      plan.shared_places.push_back({temporary, result.slot});
      break;
    }
  }
}

/// A chain of updates of which the last is a result stays in the place of that result.
void share_places_of_updates(Plan& plan) {
  std::vector<std::uint32_t> place(plan.slots.size());
  for (std::uint32_t slot = 0; slot < place.size(); ++slot) place[slot] = slot;
  for (auto i = static_cast<std::uint32_t>(plan.steps.size()); i-- > 0;) {
    const CallStep* const step = step_that_updates(plan.steps[i]);
    if (step == nullptr) continue;
    const PlanSource &from = step->sources[0], &to = step->output;
    const PlanSlot &temporary = plan.slots[from.slot], &result = plan.slots[place[to.slot]];
    const auto reads = [&](const PlanSource& s) { return s.slot == from.slot; };
    if (temporary.kind != PlanSlot::Kind::temporary || temporary.last_step != i || temporary.is_owned ||
        temporary.is_given || temporary.channels_last || result.is_owned || result.is_given || !from.path.empty() ||
        !to.path.empty() || std::ranges::count_if(step->sources, reads) != 1 ||
        !has_place_for(plan, place[to.slot], from.slot))
      continue;
    place[from.slot] = place[to.slot];
    plan.shared_places.push_back({from.slot, place[from.slot]});
  }
  // The first of a chain may have a leaf for its operand, which the chain then stays in.
  for (std::uint32_t i = first_unfailing(plan); i < plan.steps.size(); ++i) {
    const CallStep* const step = step_that_updates(plan.steps[i]);
    if (step == nullptr || place[step->output.slot] == step->output.slot) continue;
    const PlanSource& from = step->sources[0];
    const auto output = std::ranges::find(plan.output_slots, place[step->output.slot]);
    const auto leaf = std::ranges::find(plan.leaf_slots, from.slot);
    const auto reads = [&](const PlanSource& s) { return s.slot == from.slot; };
    if (output == plan.output_slots.end() || leaf == plan.leaf_slots.end() || plan.slots[from.slot].last_step != i ||
        plan.slots[from.slot].is_owned || !from.path.empty() || std::ranges::count_if(step->sources, reads) != 1 ||
        step->source_dtypes[0] != step->output_dtype)
      continue;
    plan.overwrites.push_back({static_cast<std::uint32_t>(output - plan.output_slots.begin()),
                               static_cast<std::uint32_t>(leaf - plan.leaf_slots.begin()), i, step->record});
  }
  std::ranges::stable_sort(plan.overwrites, {}, &Overwrite::step);
}

}  // namespace

bool plan_memory(Program& program) {
  Plan& plan = *program.plan;
  std::vector<bool> met(plan.slots.size(), false);
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i)
    for_each_part(plan.steps[i], [&](const auto& part) {
      for_each_slot(part, [&](std::uint32_t slot) {
        PlanSlot& s = plan.slots[slot];
        if (!met[slot]) s.first_step = i, met[slot] = true;
        s.last_step = i;
      });
    });
  if (program.capabilities.overwrites_operands) {
    Overwrites(plan).find();
    share_places(plan);
    share_places_of_updates(plan);
    share_targets(plan);
  }
  return true;
}

}  // namespace fermata

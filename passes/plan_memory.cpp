// See plan_memory.h.
#include "passes/plan_memory.h"

#include <algorithm>
#include <span>

#include "ir/op_traits.h"

namespace fermata {
namespace {

/// Whether what the step finds in its operands may be an error. Others can only run out of memory.
bool depends_on_values(const PlanStep& step) {
  if (step.kind == PlanStep::Kind::kernel) return false;
  return traits(step.op).may_fail_on_values;
}

class Overwrites {
 public:
  explicit Overwrites(Program& program) : plan_(*program.plan), kernels_(program.kernels) {}

  void find() {
    std::size_t last_failure = 0;  // steps up to this one may fail
    for (std::size_t i = 0; i < plan_.steps.size(); ++i)
      if (depends_on_values(plan_.steps[i])) last_failure = i + 1;
    std::size_t kernel = 0;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      const bool is_kernel = step.kind == PlanStep::Kind::kernel;
      if (is_kernel) ++kernel;
      if (i < last_failure) continue;
      if (is_kernel && step.reduced == 0)
        for (const Store& store : kernels_[kernel - 1].stores)
          match(i, step.sources[store.access], step.element_bytes[store.access], step.sources);
      // The operand that is updated is read nowhere but where it stays as it is.
      if (!is_kernel && traits(step.op).overwrites && step.operand_order[0] == 0 && step.operand_order[1] == 1)
        match(i, step.output, step.element_bytes[0], {step.sources.data(), 1});
    }
  }

 private:
  /// The operands among `operands` that the result may take the place of. Which of them are nobody else's is known
  /// later.
  void match(std::size_t i, const PlanSource& result, std::size_t bytes, std::span<const PlanSource> operands) {
    const PlanStep& step = plan_.steps[i];
    const auto output = std::ranges::find(plan_.output_slots, result.slot);
    if (output == plan_.output_slots.end() || !result.path.empty()) return;
    const auto output_number = static_cast<std::uint32_t>(output - plan_.output_slots.begin());
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const std::uint32_t slot = operands[k].slot;
      const auto leaf = std::ranges::find(plan_.leaf_slots, slot);
      if (leaf == plan_.leaf_slots.end() || step.element_bytes[k] != bytes || plan_.slots[slot].last_step != i ||
          plan_.slots[slot].is_owned)  // a kernel may have kept it
        continue;
      const auto leaf_number = static_cast<std::uint32_t>(leaf - plan_.leaf_slots.begin());
      const auto reads_elsewhere = [slot](const PlanSource& s) { return s.slot == slot && !s.path.empty(); };
      const auto reads = [slot](const PlanSource& s) { return s.slot == slot; };
      if (std::ranges::any_of(operands.first(k), reads) || std::ranges::any_of(step.sources, reads_elsewhere) ||
          std::ranges::count_if(step.sources, reads) != std::ranges::count_if(operands, reads) ||
          (step.on_tiles && std::ranges::any_of(plan_.steps[i - 1].sources, reads)))
        continue;
      plan_.overwrites.push_back(
          {output_number, leaf_number, static_cast<std::uint32_t>(step.on_tiles ? i - 1 : i), step.record});
    }
  }

  Plan& plan_;
  const std::vector<Kernel>& kernels_;
};

/// The result of a product need not be anywhere but where the kernel on its tiles writes: half as many bytes pass
/// through the caches.
void share_places(Program& program) {
  Plan& plan = *program.plan;
  std::size_t kernel = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.kind != PlanStep::Kind::kernel) continue;
    const Kernel& code = program.kernels[kernel++];
    if (!step.on_tiles || step.reduced != 0 || i == 0 || plan.steps[i - 1].kind != PlanStep::Kind::call) continue;
    const std::uint32_t temporary = plan.steps[i - 1].output.slot;
    if (plan.slots[temporary].kind != PlanSlot::Kind::temporary || plan.slots[temporary].last_step != i ||
        plan.slots[temporary].is_owned || plan.slots[temporary].is_given)
      continue;
    const auto reads = [temporary](const PlanSource& s) { return s.slot == temporary; };
    const auto source = std::ranges::find_if(step.sources, reads);
    if (source == step.sources.end() || !source->path.empty() || std::ranges::count_if(step.sources, reads) != 1)
      continue;
    const std::size_t bytes = step.element_bytes[static_cast<std::size_t>(source - step.sources.begin())];
    for (const Store& store : code.stores) {
      const PlanSource& result = step.sources[store.access];
      const auto output = std::ranges::find(plan.output_slots, result.slot);
      if (output == plan.output_slots.end() || !result.path.empty() || step.element_bytes[store.access] != bytes)
        continue;
      const auto number = static_cast<std::uint32_t>(output - plan.output_slots.begin());
      const auto overwrites = [number](const Overwrite& o) { return o.output == number; };
      if (std::ranges::any_of(plan.overwrites, overwrites)) continue;  // an operand may still be read there
      plan.shared_places.push_back({temporary, result.slot});
      break;
    }
  }
}

}  // namespace

bool plan_memory(Program& program) {
  Plan& plan = *program.plan;
  std::vector<bool> met(plan.slots.size(), false);
  const auto touch = [&](std::uint32_t slot, std::uint32_t step) {
    PlanSlot& s = plan.slots[slot];
    if (!met[slot]) s.first_step = step, met[slot] = true;
    s.last_step = std::max(s.last_step, step);
  };
  const auto touch_all_of = [&](std::uint32_t step, std::uint32_t at) {
    for (const PlanSource& s : plan.steps[step].sources) touch(s.slot, at);
    if (plan.steps[step].kind == PlanStep::Kind::call) touch(plan.steps[step].output.slot, at);
  };
  const auto size = static_cast<std::uint32_t>(plan.steps.size());
  for (std::uint32_t i = 0; i < size; ++i) {
    touch_all_of(i, i);
    if (i + 1 < size && plan.steps[i + 1].on_tiles) touch_all_of(i + 1, i);  // they may run together
    if (i + 2 < size && plan.steps[i + 2].on_row_blocks)
      for (std::uint32_t k = i; k <= i + 2; ++k) touch_all_of(k, i), touch_all_of(k, i + 2);
    if (plan.steps[i].beside) continue;
    std::uint32_t end = i;
    while (end + 1 < size && plan.steps[end + 1].beside) ++end;
    for (std::uint32_t k = i; end > i && k <= end; ++k) touch_all_of(k, i), touch_all_of(k, end);
  }
  if (plan.backend == BackendKey::cpu) Overwrites(program).find(), share_places(program);
  return true;
}

}  // namespace fermata

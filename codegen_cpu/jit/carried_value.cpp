// See carried_value.h.
#include "codegen_cpu/jit/carried_value.h"

#include <algorithm>

namespace fermata::jit {
namespace {

/// A store and a load cost about as much as so many operations.
constexpr std::size_t kLeastSaved = 6;

/// Whether every point has an element of its own, adjacent to those of its neighbours, that nobody reads.
bool can_hold(const Kernel& kernel, const Store& store, DType type) {
  const Access& access = kernel.accesses[store.access];
  if (access.dtype != type || type == DType::boolean || !access.unit_stride) return false;
  if (access.axes != (1u << kernel.rank) - 1u) return false;
  const bool alone =
      std::ranges::count_if(kernel.stores, [&](const Store& other) { return other.access == store.access; }) == 1;
  return alone && std::ranges::none_of(kernel.program.instrs(), [&](const Instr& instr) {
    return instr.prim == Prim::input && instr.index == store.access;
  });
}

/// Per program value: whether it differs from lane to lane.
std::vector<bool> vector_values(const Kernel& kernel) {
  std::vector<bool> varies(kernel.program.size(), false);
  for (ValueId i = 0; i < kernel.program.size(); ++i) {
    const Instr& instr = kernel.program[i];
    if (instr.prim == Prim::reduced) varies[i] = !kernel.is_row_kernel();
    if (instr.prim == Prim::input || instr.prim == Prim::offset)
      varies[i] = (kernel.accesses[instr.index].axes >> (kernel.rank - 1u) & 1u) != 0;
    for (const ValueId id : {instr.a, instr.b, instr.c})
      if (id != kNoValue && varies[id]) varies[i] = true;
  }
  return varies;
}

/// The element values that a stage still computes if it is given one of them; that one stays in the list.
std::vector<ValueId> remaining(const Kernel& kernel, const KernelSchedule::Stage& stage, ValueId given) {
  std::vector<bool> needed(kernel.program.size(), false);
  for (const std::uint16_t s : stage.element_stores) needed[kernel.stores[s].value] = true;
  for (const std::uint16_t r : stage.reductions)
    for (const ValueId id : kernel.reductions[r].lifted) needed[id] = true;
  std::vector<ValueId> kept;
  for (auto at = stage.element_values.rbegin(); at != stage.element_values.rend(); ++at) {
    if (!needed[*at]) continue;
    kept.push_back(*at);
    const Instr& instr = kernel.program[*at];
    if (*at == given) continue;
    for (const ValueId id : {instr.a, instr.b, instr.c})
      if (id != kNoValue) needed[id] = true;
  }
  std::ranges::reverse(kept);
  return kept;
}

}  // namespace

std::optional<CarriedValue> carry_value(const Kernel& kernel, KernelSchedule& schedule) {
  std::optional<CarriedValue> best;
  std::vector<ValueId> best_values;
  const std::vector<bool> is_vector = vector_values(kernel);
  std::size_t most_saved = kLeastSaved - 1;
  for (unsigned read = 1; read < schedule.stages.size(); ++read) {
    const KernelSchedule::Stage& later = schedule.stages[read];
    for (unsigned written = 0; written < read; ++written)
      for (const ValueId value : schedule.stages[written].element_values) {
        if (!is_vector[value] || std::ranges::find(later.element_values, value) == later.element_values.end()) continue;
        const auto store = std::ranges::find_if(later.element_stores, [&](std::uint16_t s) {
          return can_hold(kernel, kernel.stores[s], kernel.program[value].type);
        });
        if (store == later.element_stores.end()) continue;
        std::vector<ValueId> values = remaining(kernel, later, value);
        const std::size_t saved = later.element_values.size() - values.size();
        if (saved <= most_saved) continue;
        most_saved = saved, best_values = std::move(values);
        best = CarriedValue{value, *store, written, read};
      }
  }
  if (best) schedule.stages[best->read].element_values = std::move(best_values);
  return best;
}

}  // namespace fermata::jit

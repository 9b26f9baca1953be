// Derives from a kernel description what runs when: stages, element and row level, slices per stage.
//
// Every backend and the interpreter ask here, so that they agree on how often a value is computed and when a store
// happens. Dead values appear nowhere.
#include <algorithm>

#include "ir/instr_operands.h"
#include "ir/kernel.h"

namespace fermata {
namespace {

constexpr int kNoReduction = -1;

struct Scheduler {
  const Kernel& kernel;
  const ScalarProgram& program = kernel.program;
  KernelSchedule result{};
  std::vector<int> last_stage{};       // per value: the highest stage of a reduction that it depends on
  std::vector<int> reduction_stage{};  // per reduction

  /// Without reductions nothing is summed away, so only what no axis at all reaches counts as row level.
  bool is_row_access(const Access& access) const {
    return (access.axes & (kernel.reduced == 0 ? 0xffffu : kernel.reduced)) == 0;
  }

  /// One pass over the program: `reduced` needs the stage of its reduction, whose lifted values come earlier.
  void classify() {
    last_stage.assign(program.size(), kNoReduction);
    result.row_level.assign(program.size(), true);
    reduction_stage.assign(kernel.reductions.size(), kNoReduction);
    for (ValueId i = 0; i < program.size(); ++i) {
      const Instr& instr = program[i];
      if (instr.prim == Prim::reduced) last_stage[i] = stage_of(instr.index);
      if (has_access(instr.prim)) result.row_level[i] = is_row_access(kernel.accesses[instr.index]);
      for_operands(instr, [&](ValueId id) {
        last_stage[i] = std::max(last_stage[i], last_stage[id]);
        result.row_level[i] = result.row_level[i] && result.row_level[id];
      });
    }
  }

  int stage_of(std::uint16_t reduction) {
    int& stage = reduction_stage[reduction];
    if (stage == kNoReduction) {
      stage = 0;
      for (const ValueId id : kernel.reductions[reduction].lifted) stage = std::max(stage, last_stage[id] + 1);
    }
    return stage;
  }

  KernelSchedule::Stage& stage(int index) {
    if (result.stages.size() <= static_cast<std::size_t>(index))
      result.stages.resize(static_cast<std::size_t>(index) + 1);
    return result.stages[static_cast<std::size_t>(index)];
  }

  void place_reductions_and_stores() {
    for (std::uint16_t r = 0; r < kernel.reductions.size(); ++r) stage(stage_of(r)).reductions.push_back(r);
    stage(0);
    for (std::uint16_t s = 0; s < kernel.stores.size(); ++s) {
      const Store& store = kernel.stores[s];
      const int completed = last_stage[store.value];
      const bool per_point = kernel.reduced == 0 || !is_row_access(kernel.accesses[store.access]);
      if (per_point)
        stage(completed + 1).element_stores.push_back(s);
      else
        stage(std::max(completed, 0)).row_stores.push_back(s);
    }
  }

  /// Marks what `roots` need of the values at element level, and in `row_needed` the row-level values at its border.
  std::vector<bool> element_slice(const std::vector<ValueId>& roots, std::vector<bool>& row_needed) const {
    std::vector<bool> needed(program.size(), false);
    for (const ValueId root : roots) needed[root] = true;
    for (ValueId i = static_cast<ValueId>(program.size()); i-- > 0;) {
      if (!needed[i]) continue;
      if (result.row_level[i])
        row_needed[i] = true, needed[i] = false;
      else
        for_operands(program[i], [&](ValueId id) { needed[id] = true; });
    }
    return needed;
  }

  void slice() {
    std::vector<bool> row_needed(program.size(), false);
    for (auto& stage : result.stages) {
      std::vector<ValueId> roots;
      for (const std::uint16_t r : stage.reductions)
        for (const ValueId id : kernel.reductions[r].lifted) roots.push_back(id);
      for (const std::uint16_t s : stage.element_stores) roots.push_back(kernel.stores[s].value);
      for (const std::uint16_t s : stage.row_stores) row_needed[kernel.stores[s].value] = true;
      const std::vector<bool> needed = element_slice(roots, row_needed);
      for (ValueId i = 0; i < program.size(); ++i)
        if (needed[i]) stage.element_values.push_back(i);
    }
    for (ValueId i = static_cast<ValueId>(program.size()); i-- > 0;)
      if (row_needed[i]) for_operands(program[i], [&](ValueId id) { row_needed[id] = true; });
    for (ValueId i = 0; i < program.size(); ++i) {
      if (!row_needed[i] || !result.row_level[i]) continue;
      if (last_stage[i] == kNoReduction)
        result.row_prologue.push_back(i);
      else
        result.stages[static_cast<std::size_t>(last_stage[i])].row_values.push_back(i);
    }
  }
};

}  // namespace

KernelSchedule schedule(const Kernel& kernel) {
  Scheduler scheduler{kernel};
  scheduler.classify();
  scheduler.place_reductions_and_stores();
  scheduler.slice();
  return std::move(scheduler.result);
}

}  // namespace fermata

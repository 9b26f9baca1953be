// Kernels without reductions: rows of vectors.
#include "codegen_cpu/jit/emission.h"

namespace fermata::jit {

void emit_map_kernel(Emission& e) {
  const KernelSchedule::Stage& stage = e.schedule.stages[0];
  const GroupPlan plan = e.group_plan(stage, 2, 4);
  // Uniform values are computed per row, so a row without columns must not be entered.
  Value* const rows_end = e.b.CreateSelect(e.b.CreateICmpSLT(e.column_begin, e.column_end), e.row_end, e.row_begin);
  e.row_end = rows_end;
  e.rows([&](const Values& addresses, Environment& at_row) {
    e.columns(e.column_begin, e.column_end, plan, [&](const Span& span, unsigned vectors) {
      Environment env = at_row;
      const Group group{addresses, span, 0, vectors};
      e.evaluator.group(stage.element_values, group, env);
      e.store(stage.element_stores, env, group);
    });
  });
}

}  // namespace fermata::jit

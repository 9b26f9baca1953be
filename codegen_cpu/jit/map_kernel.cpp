// Kernels without reductions: rows of vectors.
#include "codegen_cpu/jit/emission.h"

namespace fermata::jit {
namespace {

/// Whether something is read or written across rows, as a transposed operand is: then neighboring rows share its cache
/// lines.
bool crosses_rows(const Kernel& kernel) {
  const unsigned vector_axis = kernel.rank - 1u;
  for (const Access& access : kernel.accesses)
    if (!access.address_only && !access.unit_stride && access.axes >> vector_axis > 0 &&
        access.axes != 1u << vector_axis)
      return true;
  return false;
}

void emit_rows(Emission& e, GroupPlan plan) {
  const KernelSchedule::Stage& stage = e.schedule.stages[0];
  e.rows([&](const Values& addresses, Environment& at_row) {
    e.columns(stage.element_stores, addresses, e.column_begin, e.column_end, plan,
              [&](const Span& span, unsigned vectors) {
                Environment env = at_row;
                const Group group{addresses, span, 0, vectors};
                e.evaluator.group(stage.element_values, group, env);
                e.element_stores(stage, env, group);
              });
  });
}

}  // namespace

void emit_map_kernel(Emission& e) {
  CodeBuilder& b = e.b;
  const GroupPlan plan = e.group_plan(e.schedule.stages[0], 2, 4);
  // Uniform values are computed per row, so a row without columns must not be entered.
  e.row_end = b.CreateSelect(b.CreateICmpSLT(e.column_begin, e.column_end), e.row_end, e.row_begin);
  if (!crosses_rows(e.kernel)) return emit_rows(e, plan);
  // Tiles of as many rows as a cache line has elements, and columns that stay in the first cache.
  constexpr std::int64_t kTileRows = 16, kTileColumns = 64;
  Value *const row_end = e.row_end, *const column_end = e.column_end;
  const auto least = [&](Value* x, Value* y) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); };
  b.loop(e.row_begin, row_end, kTileRows, {}, [&](Value* row, const Values&) {
    e.row_begin = row;
    e.row_end = least(b.CreateAdd(row, b.i64(kTileRows)), row_end);
    return b.loop(e.column_begin, column_end, kTileColumns, {}, [&](Value* column, const Values&) {
      e.column_begin = column;
      e.column_end = least(b.CreateAdd(column, b.i64(kTileColumns)), column_end);
      emit_rows(e, plan);
      return Values{};
    });
  });
}

}  // namespace fermata::jit

// Kernels without reductions: rows of vectors.
#include <algorithm>
#include <utility>

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

/// Tiles of as many rows as a cache line has elements, and columns that stay in the first cache.
constexpr std::int64_t kTileRows = 16, kTileColumns = 64;

/// A transposed operand, and a place on the stack for what a tile reads of it, in rows.
struct TurnedOperand {
  unsigned access;
  Value* tile;
};

/// Operands of which a tile may be turned: a vector of one then lies across as many rows as it has lanes.
std::vector<TurnedOperand> turned_operands(Emission& e) {
  // There is another copy of the program for such tiles.
  constexpr unsigned kFewInstructions = 12, kMostOperands = 4;
  const KernelSchedule::Stage& stage = e.schedule.stages[0];
  std::vector<TurnedOperand> found;
  if (e.kernel.rank < 2 || kTileRows % e.b.lanes() != 0 || !(e.wide || e.vector_count(stage) <= kFewInstructions))
    return found;
  for (unsigned a = 0; a < e.kernel.accesses.size(); ++a) {
    const Access& access = e.kernel.accesses[a];
    const bool is_read = std::ranges::any_of(e.kernel.program.instrs(),
                                             [&](const Instr& i) { return i.prim == Prim::input && i.index == a; });
    const bool is_stored = std::ranges::any_of(e.kernel.stores, [&](const Store& s) { return s.access == a; });
    const auto both = 3u << (e.kernel.rank - 2u);
    if (is_read && !is_stored && !access.unit_stride && (access.axes & both) == both && byte_size(access.dtype) == 4)
      found.push_back({a, nullptr});
  }
  if (found.size() > kMostOperands) found.clear();
  for (TurnedOperand& operand : found) operand.tile = e.b.stack(e.b.getInt32Ty(), kTileRows * kTileColumns, 64);
  return found;
}

/// Where `turned` are given, rows are those of a tile of them.
void emit_rows(Emission& e, GroupPlan plan, const std::vector<TurnedOperand>& turned = {}) {
  const KernelSchedule::Stage& stage = e.schedule.stages[0];
  CodeBuilder& b = e.b;
  for (const TurnedOperand& operand : turned) e.accesses.set_turned(operand.access, true);
  Value* const first_row = e.row_begin;
  e.rows([&](const Values& of_row, Environment& at_row) {
    Values addresses = of_row;
    for (const TurnedOperand& operand : turned) {
      Value* const rows_before = b.CreateMul(b.CreateSub(e.row, first_row), b.i64(kTileColumns));
      addresses[operand.access] = b.CreateGEP(b.getInt32Ty(), operand.tile, b.CreateSub(rows_before, e.column_begin));
    }
    e.columns(stage.element_stores, addresses, e.column_begin, e.column_end, plan,
              [&](const Span& span, unsigned vectors) {
                Environment env = at_row;
                const Group group{addresses, span, 0, vectors};
                e.evaluator.group(stage.element_values, group, env);
                e.element_stores(stage, env, group);
              });
  });
  for (const TurnedOperand& operand : turned) e.accesses.set_turned(operand.access, false);
}

/// The tile, by way of the stack where that can be: it is whole, all its rows are along one axis, and operands lie in
/// order along that.
void emit_tile(Emission& e, GroupPlan plan, const std::vector<TurnedOperand>& turned) {
  if (turned.empty()) return emit_rows(e, plan);
  CodeBuilder& b = e.b;
  const unsigned row_axis = e.kernel.rank - 2u;
  Value* const size = b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, e.accesses.size(row_axis), b.i64(1));
  const auto holds = [&](Value* from, Value* to, std::int64_t count) {
    return b.CreateICmpSLE(b.CreateAdd(from, b.i64(count)), to);
  };
  Value* fits =
      b.CreateAnd(holds(e.row_begin, e.row_end, kTileRows), holds(e.column_begin, e.column_end, kTileColumns));
  fits = b.CreateAnd(fits, holds(b.CreateURem(e.row_begin, size), size, kTileRows));
  for (const TurnedOperand& operand : turned)
    fits = b.CreateAnd(fits, e.accesses.is_adjacent_along(operand.access, row_axis));
  b.either(
      fits,
      [&] {
        Value* const row_end = std::exchange(e.row_end, b.CreateAdd(e.row_begin, b.i64(1)));
        e.rows([&](const Values& addresses, Environment&) {
          for (const TurnedOperand& operand : turned)
            e.accesses.turn(operand.access, addresses[operand.access], e.column_begin, kTileRows, kTileColumns,
                            operand.tile);
        });
        e.row_end = row_end;
        emit_rows(e, plan, turned);
        return Values{};
      },
      [&] {
        emit_rows(e, plan);
        return Values{};
      });
}

}  // namespace

void emit_map_kernel(Emission& e) {
  CodeBuilder& b = e.b;
  const GroupPlan plan = e.group_plan(e.schedule.stages[0], 2, 4);
  // Uniform values are computed per row, so a row without columns must not be entered.
  e.row_end = b.CreateSelect(b.CreateICmpSLT(e.column_begin, e.column_end), e.row_end, e.row_begin);
  if (!crosses_rows(e.kernel)) return emit_rows(e, plan);
  const std::vector<TurnedOperand> turned = turned_operands(e);
  Value *const row_end = e.row_end, *const column_end = e.column_end;
  const auto least = [&](Value* x, Value* y) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); };
  b.loop(e.row_begin, row_end, kTileRows, {}, [&](Value* row, const Values&) {
    e.row_begin = row;
    e.row_end = least(b.CreateAdd(row, b.i64(kTileRows)), row_end);
    return b.loop(e.column_begin, column_end, kTileColumns, {}, [&](Value* column, const Values&) {
      e.column_begin = column;
      e.column_end = least(b.CreateAdd(column, b.i64(kTileColumns)), column_end);
      emit_tile(e, plan, turned);
      return Values{};
    });
  });
}

}  // namespace fermata::jit

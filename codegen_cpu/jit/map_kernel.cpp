// Kernels without reductions: rows of vectors.
#include <algorithm>
#include <utility>

#include "codegen_cpu/jit/emission.h"

namespace fermata::jit {
namespace {

/// Accesses that may go across rows, as one to a transposed operand does: then neighboring rows share its cache lines.
std::vector<unsigned> across_rows(const Kernel& kernel) {
  const unsigned vector_axis = kernel.rank - 1u;
  std::vector<unsigned> found;
  for (unsigned a = 0; a < kernel.accesses.size(); ++a) {
    const Access& access = kernel.accesses[a];
    if (!access.address_only && !access.is_in_order() && access.axes >> vector_axis > 0 &&
        access.axes != 1u << vector_axis)
      found.push_back(a);
  }
  return found;
}

/// Tiles have columns that stay in the first cache, and as many rows as a cache line has elements; four times as many
/// where they lie along one axis, because the processor fetches lines that follow each other together.
constexpr std::int64_t kTileRows = 16, kTallTileRows = 4 * kTileRows, kTileColumns = 64;

/// Operands of which a tile may be turned: a vector of one then lies across as many rows as it has lanes.
std::vector<TurnedOperand> turned_operands(Emission& e) {
  if (e.kernel.rank < 2 || kTileRows % e.b.lanes() != 0) return {};
  return e.turned_operands(e.kernel.rank - 2u, kTallTileRows * kTileColumns);
}

/// Columns of a tile: all of them, where no access has its elements so far from each other that it skips cache lines.
Value* columns_of_tile(Emission& e, const std::vector<unsigned>& across) {
  constexpr std::int64_t kNear = 32;  // bytes
  CodeBuilder& b = e.b;
  Value* skips = b.getFalse();
  for (const unsigned access : across) {
    Value* const step = e.accesses.lane_step(access);
    skips = b.CreateOr(skips, b.CreateICmpUGT(b.CreateAdd(step, b.i64(kNear)), b.i64(2 * kNear)));
  }
  return b.CreateSelect(skips, b.i64(kTileColumns), b.CreateSub(e.column_end, e.column_begin));
}

/// Where `turned` are given, rows are those of a tile of them.
void emit_rows(Emission& e, GroupPlan plan, const std::vector<TurnedOperand>& turned = {}) {
  const KernelSchedule::Stage& stage = e.schedule.stages[0];
  CodeBuilder& b = e.b;
  for (const TurnedOperand& operand : turned) e.accesses.set_turned(operand.access, true);
  if (!turned.empty()) e.accesses.set_tile_columns(kTileColumns);
  Value* const first_row = e.row_begin;
  e.rows([&](const Values& of_row, Environment& at_row) {
    Values addresses = of_row;
    for (const TurnedOperand& operand : turned) {
      Value* const rows_before = b.CreateMul(b.CreateSub(e.row, first_row), b.i64(kTileColumns));
      addresses[operand.access] = b.CreateGEP(b.getInt32Ty(), operand.tile, b.CreateSub(rows_before, e.column_begin));
    }
    e.columns(stage, at_row, addresses, e.column_begin, e.column_end, plan, [&](const Span& span, unsigned vectors) {
      Environment env = at_row;
      const Group group{addresses, span, 0, vectors};
      e.evaluator.group(stage.element_values, group, env);
      e.element_stores(stage, env, group);
    });
  });
  for (const TurnedOperand& operand : turned) e.accesses.set_turned(operand.access, false);
  e.accesses.set_tile_columns(0);
}

/// Whether there are so many rows before `end`, and one axis has them all.
Value* are_along_one_axis(Emission& e, Value* row, Value* rows, Value* end) {
  CodeBuilder& b = e.b;
  Value* const size = b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, e.accesses.size(e.kernel.rank - 2u), b.i64(1));
  return b.CreateAnd(b.CreateICmpSLE(b.CreateAdd(row, rows), end),
                     b.CreateICmpSLE(b.CreateAdd(b.CreateURem(row, size), rows), size));
}

/// The tile, by way of the stack where that can be: it has just so many columns, all its rows are along one axis, and
/// operands lie in order along that.
/// `rows` of it are as many as it may have, of the multiples of kTileRows.
void emit_tile(Emission& e, GroupPlan plan, Value* rows, const std::vector<TurnedOperand>& turned) {
  if (turned.empty()) return emit_rows(e, plan);
  CodeBuilder& b = e.b;
  Value* fits = b.CreateAnd(are_along_one_axis(e, e.row_begin, rows, e.row_end),
                            b.CreateICmpEQ(b.CreateAdd(e.column_begin, b.i64(kTileColumns)), e.column_end));
  for (const TurnedOperand& operand : turned)
    fits = b.CreateAnd(fits, e.accesses.is_adjacent_along(operand.access, e.kernel.rank - 2u));
  b.either(
      fits,
      [&] {
        Value* const row_end = std::exchange(e.row_end, b.CreateAdd(e.row_begin, b.i64(1)));
        e.rows([&](const Values& addresses, Environment&) {
          for (const TurnedOperand& operand : turned) {
            // No processor foresees lines so far from each other: those of the next tile are fetched beside this one's.
            Value* const next = b.CreateMul(b.i64(kTileColumns), e.accesses.lane_step(operand.access));
            e.accesses.turn(operand.access, addresses[operand.access], e.column_begin, rows, kTileColumns, operand.tile,
                            next);
          }
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
  // Of a long program, the next group is too far away for the processor to begin it: this one has to fill its pipes.
  constexpr unsigned kQuick = 4, kWide = 6;
  const GroupPlan plan = e.group_plan(e.schedule.stages[0], 2, e.wide ? kWide : kQuick);
  // Uniform values are computed per row, so a row without columns must not be entered.
  e.row_end = b.CreateSelect(b.CreateICmpSLT(e.column_begin, e.column_end), e.row_end, e.row_begin);
  const std::vector<unsigned> across = across_rows(e.kernel);
  if (across.empty()) return emit_rows(e, plan);
  const std::vector<TurnedOperand> turned = turned_operands(e);
  Value *const row_end = e.row_end, *const column_end = e.column_end, *const columns = columns_of_tile(e, across);
  const auto least = [&](Value* x, Value* y) { return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); };
  b.loop(e.row_begin, row_end, kTallTileRows, {}, [&](Value* strip, const Values&) {
    Value* const strip_end = least(b.CreateAdd(strip, b.i64(kTallTileRows)), row_end);
    // Without operands to turn, a tile is for the lines that its rows share.
    Value* rows = b.i64(kTileRows);
    if (!turned.empty())
      rows = b.CreateSelect(are_along_one_axis(e, strip, b.i64(kTallTileRows), row_end), b.i64(kTallTileRows), rows);
    Value* const tiles = b.CreateUDiv(b.CreateAdd(b.CreateSub(strip_end, strip), b.CreateSub(rows, b.i64(1))), rows);
    b.repeat_while({e.column_begin}, [&](Values& column) -> Value* {
      Value* const begin = std::exchange(e.column_begin, column[0]);
      e.column_end = least(b.CreateAdd(column[0], columns), column_end);
      column[0] = b.CreateAdd(column[0], columns);
      b.loop(b.i64(0), tiles, 1, {}, [&](Value* tile, const Values&) {
        e.row_begin = b.CreateAdd(strip, b.CreateMul(tile, rows));
        e.row_end = least(b.CreateAdd(e.row_begin, rows), strip_end);
        emit_tile(e, plan, rows, turned);
        return Values{};
      });
      e.column_begin = begin;
      return b.CreateICmpSLT(column[0], column_end);
    });
    return Values{};
  });
}

}  // namespace fermata::jit

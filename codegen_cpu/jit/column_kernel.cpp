// Kernels that reduce other axes than the vector axis: each lane is a reduction of its own, in blocks of kColumnBlock,
// or by the tree of a row kernel where the kernel is one of short rows that were turned (codegen_cpu/turned_rows.h).
#include <algorithm>
#include <bit>
#include <vector>

#include "codegen_cpu/jit/reduction_state.h"

namespace fermata::jit {
namespace {

/// Of the rows that are reduced together from the stack, whose first-level cache they share with the rows themselves:
/// at most so many, and states of one element of each.
constexpr unsigned kMostTurnedLanes = 32, kMostTurnedStates = 128;
/// Steps of an operand that lies in order along them, not along the columns, are turned by so many on the stack, for at
/// most so many columns: their cache lines are read side by side, and stay in the L1 cache until the next steps.
constexpr std::int64_t kTileSteps = 16, kMostTileColumns = 64;

/// No processor foresees lines so far from each other.
constexpr std::int64_t kStepsAhead = 8;

class ColumnKernel {
 public:
  explicit ColumnKernel(Emission& e);
  void emit();

 private:
  /// All stages for a group of vectors of one row.
  void columns(const Values& row, const Environment& at_row, const Span& span, unsigned vectors);
  void element_stage(const KernelSchedule::Stage& stage, const Values& addresses, const Span& span, unsigned vectors,
                     const Environment& env);
  Values reduce(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                const Span& span, unsigned vectors, const Environment& env);
  /// The same for at most kReductionLanes elements in each of at most as many blocks: one for each lane of a tree,
  /// which wait on the stack.
  Values reduce_by_halves(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                          const Span& span, unsigned vectors, const Environment& env);
  /// Merges the upper half of `count` elements on the stack, from number `first` on, into the lower one until one is
  /// left.
  void merge_halves(const ReductionState& state, unsigned vectors, Value* first, Value* count);
  Values step(const KernelSchedule::Stage& stage, const ReductionState& state, const Group& group, const Values& lanes,
              Environment env);
  /// Steps of the innermost reduced axis from `first` on.
  Values steps(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& first, Value* count,
               const Values& before, const Span& span, unsigned vectors, const Environment& env);
  /// The same where operands lie in order along them; whole tiles of columns.
  Values steps_of_tiles(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& first,
                        Value* count, const Values& before, const Span& span, unsigned vectors, const Environment& env);
  /// Operands that may lie so.
  std::vector<TurnedOperand> turned_operands() const;
  /// Whether they do for a group of columns; null where there are none.
  Value* are_in_tiles(Value* steps, const Span& span, unsigned vectors) const;
  GroupPlan plan() const;
  /// Of the states of the reductions that a stage completes; the most of a stage.
  unsigned components(const KernelSchedule::Stage& stage) const;
  unsigned most_components() const;
  bool has_few_instructions() const;

  Value* waiting(const ReductionState& state, unsigned vectors, Value* number) {
    const auto words = static_cast<std::int64_t>(state.components() * vectors * b_.lanes());
    return b_.CreateGEP(b_.getInt64Ty(), waiting_, b_.CreateMul(number, b_.i64(words)));
  }
  Values load_waiting(const ReductionState& state, unsigned vectors, Value* number);
  void store_waiting(const ReductionState& state, unsigned vectors, Value* number, const Values& values);

  Emission& e_;
  CodeBuilder& b_;
  const std::vector<TurnedOperand> operands_;
  const GroupPlan groups_;
  unsigned inner_axis_ = 0;
  llvm::SmallVector<Digit, 4> outer_, blocks_;  // reduced axes but the innermost; with its blocks
  Digit inner_;
  Value *passes_, *total_;
  Value* waiting_ = nullptr;
};

ColumnKernel::ColumnKernel(Emission& e) : e_(e), b_(e.b), operands_(turned_operands()), groups_(plan()) {
  const unsigned columns = groups_.width * b_.lanes();
  e.add_scratch(columns, groups_.masked ? columns : b_.lanes());
  const auto axes = e.outer_reduced_axes();
  for (const unsigned axis : llvm::ArrayRef(axes).drop_back()) outer_.push_back(e.accesses.axis_digit(axis));
  blocks_ = outer_;
  blocks_.push_back(e.accesses.block_digit(axes.back(), kColumnBlock));
  inner_axis_ = axes.back();
  inner_ = e.accesses.axis_digit(inner_axis_);
  if (!e.turned) e.accesses.prefetch_steps(inner_axis_, kStepsAhead);
  passes_ = e.product(outer_);
  total_ = e.product(blocks_);
  if (e.turned) {
    const std::size_t trees = outer_.empty() ? 1 : 2;
    waiting_ = b_.stack(b_.getInt64Ty(), most_components() * columns * kReductionLanes * trees, 64);
  }
  e.row_end = b_.CreateSelect(b_.CreateICmpSLT(e.column_begin, e.column_end), e.row_end, e.row_begin);
}

unsigned ColumnKernel::components(const KernelSchedule::Stage& stage) const {
  std::size_t count = 0;
  for (const std::uint16_t r : stage.reductions) count += e_.kernel.reductions[r].types.size();
  return static_cast<unsigned>(count);
}
unsigned ColumnKernel::most_components() const {
  unsigned most = 1;
  for (const KernelSchedule::Stage& stage : e_.schedule.stages) most = std::max(most, components(stage));
  return most;
}

/// Columns that fill no group are worth smaller ones in short code: each group goes down all rows, and waits for its
/// reduction at each of them.
bool ColumnKernel::has_few_instructions() const {
  constexpr unsigned kFewInstructions = 4, kMostInstructions = 16;
  unsigned count = 0;
  for (const KernelSchedule::Stage& stage : e_.schedule.stages) count += e_.vector_count(stage) + components(stage);
  return e_.affords(count, kFewInstructions, kMostInstructions);
}

GroupPlan ColumnKernel::plan() const {
  // Later stages read the columns again: few of them at a time stay in the second cache.
  GroupPlan plan{e_.schedule.stages.size() > 1 ? 4u : 8u, b_.isa().masks};
  for (const KernelSchedule::Stage& stage : e_.schedule.stages) {
    const unsigned state = components(stage);
    const GroupPlan stage_plan = e_.group_plan(stage, 2, 8);
    // Accumulators of every vector stay in registers beside the values.
    plan.width = std::min({plan.width, stage_plan.width, std::max(1u, b_.isa().registers / (2 * std::max(1u, state)))});
    plan.masked = plan.masked && stage_plan.masked;
  }
  if (e_.turned) {
    const unsigned lanes = std::min(kMostTurnedLanes, kMostTurnedStates / most_components());
    plan.width = std::min(plan.width, std::max(1u, lanes / b_.lanes()));
  }
  if (!operands_.empty())
    plan.width = std::min(plan.width, static_cast<unsigned>(kMostTileColumns) / std::max(1u, b_.lanes()));
  if (!plan.masked) plan.width = std::bit_floor(plan.width);
  return plan;
}

std::vector<TurnedOperand> ColumnKernel::turned_operands() const {
  if (e_.turned || kTileSteps % b_.lanes() != 0 || kMostTileColumns < b_.lanes()) return {};
  return e_.turned_operands(e_.outer_reduced_axes().back(), kTileSteps * kMostTileColumns);
}

void ColumnKernel::emit() {
  e_.rows([&](const Values& addresses, Environment& env) {
    const auto group = [&](const Span& span, unsigned vectors) { columns(addresses, env, span, vectors); };
    Value* begin = e_.column_begin;
    const auto whole = [&](unsigned width) { begin = e_.whole_columns(begin, e_.column_end, width, group); };
    GroupPlan plan = groups_;
    const unsigned least = e_.wide ? 2 : 4;
    if (!plan.masked && has_few_instructions())
      for (; plan.width > least; plan.width /= 2) whole(plan.width);
    e_.columns(begin, e_.column_end, plan, group);
  });
}

void ColumnKernel::columns(const Values& row, const Environment& at_row, const Span& span, unsigned vectors) {
  const Values addresses = e_.accesses.moved(row, e_.vector_axis(), span.index);
  const Span here{b_.i64(0), span.left, span.masks, span.may_branch};
  const Group group{addresses, here, 0, vectors};
  Environment env = at_row;
  e_.evaluator.group(e_.schedule.row_prologue, group, env);
  for (const KernelSchedule::Stage& stage : e_.schedule.stages) {
    const ReductionState state(e_, stage.reductions);
    e_.enter(stage, env);
    if (stage.reductions.empty())
      element_stage(stage, addresses, here, vectors, env);
    else
      state.finish_vectors(reduce(stage, state, addresses, here, vectors, env), vectors, env);
    e_.evaluator.group(stage.row_values, group, env);
    e_.store(stage.row_stores, env, group);
  }
}

void ColumnKernel::element_stage(const KernelSchedule::Stage& stage, const Values& addresses, const Span& span,
                                 unsigned vectors, const Environment& env) {
  e_.accesses.linear_loop(outer_, b_.i64(0), passes_, addresses, {},
                          [&](const Values& pass, Value*, Value*, const Values&) {
                            return e_.accesses.linear_loop({inner_}, b_.i64(0), inner_.size, pass, {},
                                                           [&](const Values& at, Value*, Value*, const Values&) {
                                                             Environment here = env;
                                                             const Group group{at, span, 0, vectors};
                                                             e_.evaluator.group(stage.element_values, group, here);
                                                             e_.element_stores(stage, here, group);
                                                             return Values{};
                                                           });
                          });
}

Values ColumnKernel::reduce(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                            const Span& span, unsigned vectors, const Environment& env) {
  if (e_.turned) return reduce_by_halves(stage, state, addresses, span, vectors, env);
  const Values identity = state.identity(vectors, b_.lanes());
  Value* const several = b_.CreateICmpSGT(total_, b_.i64(1));
  return e_.accesses.linear_loop(
      blocks_, b_.i64(0), total_, addresses, identity,
      [&](const Values& first, Value*, Value* along_axis, const Values& before) {
        Value* const rest = b_.CreateSub(inner_.size, b_.CreateMul(along_axis, b_.i64(kColumnBlock)));
        Value* const length = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rest, b_.i64(kColumnBlock));
        const auto in_order = [&] { return steps(stage, state, first, length, identity, span, vectors, env); };
        Value* const has_tiles = are_in_tiles(length, span, vectors);
        const Values block =
            has_tiles == nullptr
                ? in_order()
                : b_.either(
                      has_tiles,
                      [&] { return steps_of_tiles(stage, state, first, length, identity, span, vectors, env); },
                      in_order);
        return b_.when(several, block, [&] { return state.combined(before, block, 0, vectors); });
      });
}

Values ColumnKernel::steps(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& first,
                           Value* count, const Values& before, const Span& span, unsigned vectors,
                           const Environment& env) {
  return e_.accesses.linear_loop({inner_}, b_.i64(0), count, first, before,
                                 [&](const Values& at, Value*, Value*, const Values& lanes) {
                                   return step(stage, state, {at, span, 0, vectors}, lanes, env);
                                 });
}

Values ColumnKernel::step(const KernelSchedule::Stage& stage, const ReductionState& state, const Group& group,
                          const Values& lanes, Environment env) {
  e_.evaluator.group(stage.element_values, group, env);
  e_.element_stores(stage, env, group);
  return state.combined(lanes, state.lifted(env, group.last, 0, group.last), 0, group.last);
}

Value* ColumnKernel::are_in_tiles(Value* steps, const Span& span, unsigned vectors) const {
  if (operands_.empty() || (vectors == 1 && !span.masks.empty())) return nullptr;
  Value* fits = b_.CreateICmpSGE(steps, b_.i64(kTileSteps));
  if (span.left != nullptr)
    fits = b_.CreateAnd(fits, b_.CreateICmpSGE(span.left, b_.i64(std::int64_t{vectors} * b_.lanes())));
  for (const TurnedOperand& operand : operands_)
    fits = b_.CreateAnd(fits, e_.accesses.is_adjacent_along(operand.access, inner_axis_));
  return fits;
}

Values ColumnKernel::steps_of_tiles(const KernelSchedule::Stage& stage, const ReductionState& state,
                                    const Values& first, Value* count, const Values& before, const Span& span,
                                    unsigned vectors, const Environment& env) {
  constexpr std::int64_t kTilesAhead = 2, kElement = 4;
  const std::int64_t columns = std::int64_t{vectors} * b_.lanes();
  const Span all{b_.i64(0)};  // of its lanes, whatever the masks are
  Value* const whole = b_.CreateAnd(count, b_.i64(-kTileSteps));
  const Values lanes = b_.loop(b_.i64(0), whole, kTileSteps, before, [&](Value* from, const Values& so_far) {
    const Values at = e_.accesses.moved(first, inner_axis_, from);
    for (const TurnedOperand& operand : operands_) {
      e_.accesses.turn(operand.access, at[operand.access], b_.i64(0), b_.i64(kTileSteps), columns, operand.tile,
                       b_.i64(kTilesAhead * kTileSteps * kElement));
      e_.accesses.set_turned(operand.access, true);
    }
    const Values next =
        e_.accesses.linear_loop({inner_}, b_.i64(0), b_.i64(kTileSteps), at, so_far,
                                [&](const Values& of_step, Value* number, Value*, const Values& carried) {
                                  Values addresses = of_step;
                                  for (const TurnedOperand& operand : operands_)
                                    addresses[operand.access] = b_.CreateGEP(b_.getInt32Ty(), operand.tile,
                                                                             b_.CreateMul(number, b_.i64(columns)));
                                  return step(stage, state, {addresses, all, 0, vectors}, carried, env);
                                });
    for (const TurnedOperand& operand : operands_) e_.accesses.set_turned(operand.access, false);
    return next;
  });
  return steps(stage, state, e_.accesses.moved(first, inner_axis_, whole), b_.CreateSub(count, whole), lanes, span,
               vectors, env);
}

Values ColumnKernel::load_waiting(const ReductionState& state, unsigned vectors, Value* number) {
  Value* const at = waiting(state, vectors, number);
  Values values;
  for (unsigned c = 0; c < state.components(); ++c) {
    Value* const component = b_.element(b_.getInt64Ty(), at, std::uint64_t{c} * vectors * b_.lanes());
    for (unsigned v = 0; v < vectors; ++v)
      values.push_back(b_.load_value(value_type(b_.getContext(), state.type(c), b_.lanes()), component, v));
  }
  return values;
}

void ColumnKernel::store_waiting(const ReductionState& state, unsigned vectors, Value* number, const Values& values) {
  Value* const at = waiting(state, vectors, number);
  for (unsigned c = 0; c < state.components(); ++c) {
    Value* const component = b_.element(b_.getInt64Ty(), at, std::uint64_t{c} * vectors * b_.lanes());
    for (unsigned v = 0; v < vectors; ++v) b_.store_value(values[c * vectors + v], component, v);
  }
}

Values ColumnKernel::reduce_by_halves(const KernelSchedule::Stage& stage, const ReductionState& state,
                                      const Values& addresses, const Span& span, unsigned vectors,
                                      const Environment& env) {
  const Values identity = state.identity(vectors, b_.lanes());
  const auto merge_block = [&](const Values& addresses_of_block) {
    e_.accesses.linear_loop({inner_}, b_.i64(0), inner_.size, addresses_of_block, {},
                            [&](const Values& at, Value* number, Value*, const Values&) {
                              Environment here = env;
                              const Group group{at, span, 0, vectors};
                              e_.evaluator.group(stage.element_values, group, here);
                              e_.element_stores(stage, here, group);
                              const Values lifted = state.lifted(here, vectors, 0, vectors);
                              store_waiting(state, vectors, number, state.combined(identity, lifted, 0, vectors));
                              return Values{};
                            });
    merge_halves(state, vectors, b_.i64(0), inner_.size);
    return load_waiting(state, vectors, b_.i64(0));
  };
  if (outer_.empty()) return merge_block(addresses);
  Value* const first = b_.i64(kReductionLanes);
  e_.accesses.linear_loop(
      outer_, b_.i64(0), passes_, addresses, {}, [&](const Values& at, Value* number, Value*, const Values&) {
        const Values block = merge_block(at);
        Value* const several = b_.CreateICmpSGT(passes_, b_.i64(1));
        const Values lane = b_.when(several, block, [&] { return state.combined(identity, block, 0, vectors); });
        store_waiting(state, vectors, b_.CreateAdd(first, number), lane);
        return Values{};
      });
  merge_halves(state, vectors, first, passes_);
  return load_waiting(state, vectors, first);
}

void ColumnKernel::merge_halves(const ReductionState& state, unsigned vectors, Value* first, Value* count) {
  // Lanes without an element hold the identity in a row kernel and change nothing.
  Value* const below = b_.CreateSub(count, b_.i64(1));
  Value* const zeros = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, below, b_.getInt1(false));
  Value* const levels = b_.CreateSub(b_.i64(64), zeros);
  b_.loop(b_.i64(0), levels, 1, {}, [&](Value* level, const Values&) {
    Value* const shift = b_.CreateSub(b_.CreateSub(levels, level), b_.i64(1));
    Value* const half = b_.CreateShl(b_.i64(1), shift);
    Value* const pairs = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, half, b_.CreateSub(count, half));
    return b_.loop(b_.i64(0), pairs, 1, {}, [&](Value* number, const Values&) {
      Value* const lower = b_.CreateAdd(first, number);
      const Values left = load_waiting(state, vectors, lower);
      const Values right = load_waiting(state, vectors, b_.CreateAdd(lower, half));
      store_waiting(state, vectors, lower, state.combined(left, right, 0, vectors));
      return Values{};
    });
  });
}

}  // namespace

void emit_column_kernel(Emission& e) { ColumnKernel(e).emit(); }

}  // namespace fermata::jit

// Kernels that reduce other axes than the vector axis: each lane is a reduction of its own, in blocks of kColumnBlock,
// or by the tree of a row kernel where the kernel is one of short rows that were turned (codegen_cpu/turned_rows.h).
#include <algorithm>
#include <bit>
#include <vector>

#include "codegen_cpu/jit/plugin.h"
#include "codegen_cpu/jit/reduction_state.h"

namespace fermata::jit {
namespace {

/// Of the rows that are reduced together from the stack, whose first-level cache they share with the rows themselves:
/// at most so many, and states of one element of each.
constexpr unsigned kMostTurnedLanes = 32, kMostTurnedStates = 128;
/// Steps of an operand that lies in order along them, not along the columns, are turned by so many on the stack, for at
/// most so many columns: their cache lines are read side by side, and stay in the L1 cache until the next steps.
constexpr std::int64_t kTileSteps = 16, kMostTileColumns = 64;

/// Columns of one stage are reduced block by block, at most so many vectors of columns at a time: rows are read in
/// order, and the lines that groups share stay in the second-level cache. sum(x * 2, 0) of [10000, 100] takes 0.72 of
/// the time of groups that go down all rows, of [4000, 4000] the same (Zen 5).
constexpr unsigned kPanelVectors = 32;
/// Of fewer blocks, panels would cost more than they save; and they are as much code again.
constexpr std::int64_t kFewestBlocks = 4;

/// No processor foresees lines so far from each other.
constexpr std::int64_t kStepsAhead = 8;

class ColumnKernel {
 public:
  explicit ColumnKernel(Emission& e);
  void emit();

 private:
  /// Calls `body` for the groups of columns between two.
  void groups(Value* begin, Value* end, llvm::function_ref<void(const Span& span, unsigned vectors)> body);
  /// The only stage of one row, by panels. States wait on the stack from block to block.
  void panels(const Values& row, const Environment& at_row);
  /// Whole groups, which may be masked.
  unsigned panel_columns() const { return kPanelVectors / groups_.width * groups_.width * b_.lanes(); }
  bool has_panels() const { return e_.wide && !e_.turned && e_.schedule.stages.size() == 1; }
  /// All stages for a group of vectors of one row.
  void columns(const Values& row, const Environment& at_row, const Span& span, unsigned vectors);
  void element_stage(const KernelSchedule::Stage& stage, const Values& addresses, const Span& span, unsigned vectors,
                     const Environment& env);
  Values reduce(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                const Span& span, unsigned vectors, const Environment& env);
  /// Block `number` along the innermost reduced axis, in which the group is at the first element.
  Values reduce_block(const KernelSchedule::Stage& stage, const ReductionState& state, const Group& group,
                      Value* number, const Values& identity, const Environment& env);
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

  /// The state of lane `number` of the tree of a row.
  Value* waiting(const ReductionState& state, unsigned vectors, Value* number) {
    const auto words = static_cast<std::int64_t>(state.components() * vectors * b_.lanes());
    return b_.CreateGEP(b_.getInt64Ty(), waiting_, b_.CreateMul(number, b_.i64(words)));
  }
  Values load_states(const ReductionState& state, unsigned vectors, Value* at);
  void store_states(const ReductionState& state, unsigned vectors, Value* at, const Values& values);
  /// The states of columns from `number` on, on the stack or among the partials.
  Value* of_columns(const ReductionState& state, Value* first, Value* number) {
    const auto words = static_cast<std::int64_t>(state.components());
    return b_.CreateGEP(b_.getInt64Ty(), first, b_.CreateMul(number, b_.i64(words)));
  }
  /// Of a block among the partials: those of all columns.
  Value* partials_of(const ReductionState& state, Value* block);

  Emission& e_;
  CodeBuilder& b_;
  const std::vector<TurnedOperand> operands_;
  const GroupPlan groups_;
  unsigned inner_axis_ = 0;
  llvm::SmallVector<Digit, 4> outer_, blocks_;  // reduced axes but the innermost; with its blocks
  Digit inner_;
  Value *passes_, *total_;
  Value* waiting_ = nullptr;
  const bool splits_;
  Value *is_partial_ = nullptr, *is_finish_ = nullptr;
  Value *first_block_, *last_block_;
};

ColumnKernel::ColumnKernel(Emission& e)
    : e_(e), b_(e.b), operands_(turned_operands()), groups_(plan()), splits_(e.splits_columns()) {
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
  } else if (has_panels()) {
    waiting_ = b_.stack(b_.getInt64Ty(), most_components() * panel_columns(), 64);
  }
  first_block_ = b_.i64(0), last_block_ = total_;
  if (splits_) {
    const auto is = [&](Part part) { return b_.CreateICmpEQ(e.part, b_.getInt64(static_cast<std::uint64_t>(part))); };
    is_partial_ = is(Part::partial), is_finish_ = is(Part::finish);
    first_block_ = b_.CreateSelect(is_partial_, e.column_begin, b_.i64(0));
    last_block_ = b_.CreateSelect(is_partial_, e.column_end, b_.CreateSelect(is_finish_, b_.i64(0), total_));
    e.column_begin = b_.CreateSelect(is_partial_, b_.i64(0), e.column_begin);
    e.column_end = b_.CreateSelect(is_partial_, e.accesses.size(e.vector_axis()), e.column_end);
    // A call for blocks or their merge is about one row.
    e.row_end = b_.CreateSelect(is(Part::whole), e.row_end, b_.CreateAdd(e.row_begin, b_.i64(1)));
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
    const auto in_groups = [&] {
      groups(e_.column_begin, e_.column_end,
             [&](const Span& span, unsigned vectors) { columns(addresses, env, span, vectors); });
      return Values{};
    };
    const auto in_panels = [&] {
      panels(addresses, env);
      return Values{};
    };
    if (!has_panels()) return static_cast<void>(in_groups());
    Value* is_tall = b_.CreateICmpSGE(total_, b_.i64(kFewestBlocks));
    if (splits_) is_tall = b_.CreateOr(is_tall, b_.CreateOr(is_partial_, is_finish_));
    b_.either(is_tall, in_panels, in_groups);
  });
}

void ColumnKernel::groups(Value* begin, Value* end, llvm::function_ref<void(const Span& span, unsigned vectors)> body) {
  GroupPlan plan = groups_;
  const unsigned least = e_.wide ? 2 : 4;
  if (!plan.masked && has_few_instructions())
    for (; plan.width > least; plan.width /= 2) begin = e_.whole_columns(begin, end, plan.width, body);
  e_.columns(begin, end, plan, body);
}

void ColumnKernel::panels(const Values& row, const Environment& at_row) {
  const KernelSchedule::Stage& stage = e_.schedule.stages.front();
  const ReductionState state(e_, stage.reductions);
  const std::int64_t columns = panel_columns();
  // What a group of columns has before its first block, in `env`.
  const auto enter = [&](const Group& group, Environment& env) {
    e_.evaluator.group(e_.schedule.row_prologue, group, env);
    e_.enter(stage, env);
  };
  const auto at_column = [&](const Values& at, const Span& span) {
    return e_.accesses.moved(at, e_.vector_axis(), span.index);
  };
  const auto here = [&](const Span& span) { return Span{b_.i64(0), span.left, span.masks, span.may_branch}; };
  b_.loop(e_.column_begin, e_.column_end, columns, {}, [&](Value* begin, const Values&) {
    Value* const end =
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(begin, b_.i64(columns)), e_.column_end);
    const auto on_stack = [&](Value* column) { return of_columns(state, waiting_, b_.CreateSub(column, begin)); };
    const auto among_partials = [&](Value* block, Value* column) {
      return of_columns(state, partials_of(state, block), column);
    };
    Value* const several = b_.CreateICmpSGT(total_, b_.i64(1));
    e_.accesses.linear_loop(
        blocks_, first_block_, last_block_, row, {},
        [&](const Values& first, Value* number, Value* along_axis, const Values&) {
          groups(begin, end, [&](const Span& span, unsigned vectors) {
            const Values start = at_column(row, span), at = at_column(first, span);
            Environment env = at_row;
            enter({start, here(span), 0, vectors}, env);
            const Values identity = state.identity(vectors, b_.lanes());
            const Values block = reduce_block(stage, state, {at, here(span), 0, vectors}, along_axis, identity, env);
            Value* to = on_stack(span.index);
            const auto merged = [&] {
              const auto before = [&] { return load_states(state, vectors, on_stack(span.index)); };
              const auto none = [&] { return identity; };
              return state.combined(b_.either(b_.CreateICmpEQ(number, b_.i64(0)), none, before), block, 0, vectors);
            };
            Value* merges = several;
            if (splits_) {
              to = b_.CreateSelect(is_partial_, among_partials(number, span.index), to);
              merges = b_.CreateAnd(merges, b_.CreateNot(is_partial_));
            }
            store_states(state, vectors, to, b_.when(merges, block, merged));
          });
          return Values{};
        });
    const auto finish = [&](const Span& span, unsigned vectors) {
      const Values start = at_column(row, span);
      const Group group{start, here(span), 0, vectors};
      Environment env = at_row;
      enter(group, env);
      const Values identity = state.identity(vectors, b_.lanes());
      const auto of_blocks = [&] {
        return b_.when(b_.CreateICmpSGT(total_, b_.i64(0)), identity,
                       [&] { return load_states(state, vectors, on_stack(span.index)); });
      };
      const auto of_partials = [&] {
        return b_.loop(b_.i64(0), total_, 1, identity, [&](Value* number, const Values& before) {
          const Values block = load_states(state, vectors, among_partials(number, span.index));
          return b_.when(several, block, [&] { return state.combined(before, block, 0, vectors); });
        });
      };
      state.finish_vectors(splits_ ? b_.either(is_finish_, of_partials, of_blocks) : of_blocks(), vectors, env);
      e_.evaluator.group(stage.row_values, group, env);
      e_.store(stage.row_stores, env, group);
    };
    const auto finish_groups = [&] {
      groups(begin, end, finish);
      return Values{};
    };
    if (splits_)
      b_.when(b_.CreateNot(is_partial_), {}, finish_groups);
    else
      finish_groups();
    return Values{};
  });
}

Value* ColumnKernel::partials_of(const ReductionState& state, Value* block) {
  const auto granule = static_cast<std::int64_t>(e_.scratch_lanes);
  Value* const field = b_.element(b_.getInt8Ty(), e_.launch, offsetof(KernelLaunch, partials));
  Value* const states = b_.CreateAlignedLoad(b_.getPtrTy(), field, llvm::Align(8));
  Value* const rounded = b_.CreateAdd(e_.accesses.size(e_.vector_axis()), b_.i64(granule - 1));
  Value* const columns = b_.CreateMul(b_.CreateUDiv(rounded, b_.i64(granule)), b_.i64(granule));
  return of_columns(state, states, b_.CreateMul(block, columns));
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
        const Values block = reduce_block(stage, state, {first, span, 0, vectors}, along_axis, identity, env);
        return b_.when(several, block, [&] { return state.combined(before, block, 0, vectors); });
      });
}

Values ColumnKernel::reduce_block(const KernelSchedule::Stage& stage, const ReductionState& state, const Group& group,
                                  Value* number, const Values& identity, const Environment& env) {
  const auto& [first, span, begin, vectors] = group;
  Value* const rest = b_.CreateSub(inner_.size, b_.CreateMul(number, b_.i64(kColumnBlock)));
  Value* const length = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rest, b_.i64(kColumnBlock));
  const auto in_order = [&] { return steps(stage, state, first, length, identity, span, vectors, env); };
  Value* const has_tiles = are_in_tiles(length, span, vectors);
  if (has_tiles == nullptr) return in_order();
  return b_.either(
      has_tiles, [&] { return steps_of_tiles(stage, state, first, length, identity, span, vectors, env); }, in_order);
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

Values ColumnKernel::load_states(const ReductionState& state, unsigned vectors, Value* at) {
  Values values;
  for (unsigned c = 0; c < state.components(); ++c) {
    Value* const component = b_.element(b_.getInt64Ty(), at, std::uint64_t{c} * vectors * b_.lanes());
    for (unsigned v = 0; v < vectors; ++v)
      values.push_back(b_.load_value(value_type(b_.getContext(), state.type(c), b_.lanes()), component, v));
  }
  return values;
}

void ColumnKernel::store_states(const ReductionState& state, unsigned vectors, Value* at, const Values& values) {
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
                              store_states(state, vectors, waiting(state, vectors, number),
                                           state.combined(identity, lifted, 0, vectors));
                              return Values{};
                            });
    merge_halves(state, vectors, b_.i64(0), inner_.size);
    return load_states(state, vectors, waiting(state, vectors, b_.i64(0)));
  };
  if (outer_.empty()) return merge_block(addresses);
  Value* const first = b_.i64(kReductionLanes);
  e_.accesses.linear_loop(
      outer_, b_.i64(0), passes_, addresses, {}, [&](const Values& at, Value* number, Value*, const Values&) {
        const Values block = merge_block(at);
        Value* const several = b_.CreateICmpSGT(passes_, b_.i64(1));
        const Values lane = b_.when(several, block, [&] { return state.combined(identity, block, 0, vectors); });
        store_states(state, vectors, waiting(state, vectors, b_.CreateAdd(first, number)), lane);
        return Values{};
      });
  merge_halves(state, vectors, first, passes_);
  return load_states(state, vectors, waiting(state, vectors, first));
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
      const Values left = load_states(state, vectors, waiting(state, vectors, lower));
      const Values right = load_states(state, vectors, waiting(state, vectors, b_.CreateAdd(lower, half)));
      store_states(state, vectors, waiting(state, vectors, lower), state.combined(left, right, 0, vectors));
      return Values{};
    });
  });
}

}  // namespace

void emit_column_kernel(Emission& e) { ColumnKernel(e).emit(); }

}  // namespace fermata::jit

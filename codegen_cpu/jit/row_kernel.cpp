// Kernels whose vector axis is reduced: lanes run along the reduction, in the tree that ir/kernel.h fixes.
//
// The kReductionLanes lanes of a block are a few vectors in registers. A row of one block, the common case, never
// touches the second tree; that one lives on the stack. The same code does a whole row, some blocks of it, or the merge
// of blocks that others did (jit::Part).
#include <bit>
#include <cstddef>

#include "codegen_cpu/jit/plugin.h"
#include "codegen_cpu/jit/reduction_state.h"

namespace fermata::jit {
namespace {

/// A copy of the program for every vector of the lanes must not take too long to compile; beyond this many instructions
/// lanes are kept on the stack, which needs fewer copies.
constexpr unsigned kFewInstructions = 60, kMostInstructions = 150;

class RowKernel {
 public:
  explicit RowKernel(Emission& e);
  void emit() {
    e_.rows([&](const Values& addresses, Environment& env) { row(addresses, env); });
  }

 private:
  void row(const Values& addresses, Environment& env);
  void element_stage(const KernelSchedule::Stage& stage, const Values& addresses, const Environment& env);
  /// The finished state of a stage's reductions.
  Values reduce(const KernelSchedule::Stage& stage, const Values& addresses, const Environment& env);
  Values blocks_of_others(const ReductionState& state, const Values& identity, Value* second_tree);
  /// The lanes of one block of so many elements; or, of none, those of the second tree.
  Values block(const KernelSchedule::Stage& stage, const ReductionState& finished, const Values& addresses,
               Value* length, Value* is_block, Value* second_tree, const Environment& env);
  /// Instructions per element, the combining of its reductions included.
  unsigned program_length(const KernelSchedule::Stage& stage) const;
  void through_stack(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                     Value* begin, Value* length, const Environment& env, Value* stack, GroupPlan plan);
  /// The lanes of a block after its last `left` elements, fewer than kReductionLanes.
  Values rest(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses, Value* begin,
              Value* left, const Environment& env, Values lanes);
  /// Computes a group and adds it to lanes [first, last).
  Values accumulate(const KernelSchedule::Stage& stage, const ReductionState& state, const Group& group,
                    Environment env, const Values& lanes);

  Value* stack_of(const ReductionState& state) {
    return b_.stack(b_.getInt64Ty(), state.components() * kReductionLanes, 64);
  }
  std::uint64_t stack_vectors() const { return kReductionLanes / b_.lanes(); }
  Type* vector_type(DType dtype) const { return value_type(b_.getContext(), dtype, b_.lanes()); }
  Value* component(Value* stack, unsigned index) {
    return b_.element(b_.getInt64Ty(), stack, std::uint64_t{index} * kReductionLanes);
  }
  Value* lane(const ReductionState& state, Value* stack, unsigned index, Value* number) {
    return b_.CreateGEP(memory_type(b_.getContext(), state.type(index), 1), component(stack, index), number);
  }
  void to_stack(const ReductionState& state, const Values& lanes, Value* stack);
  Values from_stack(const ReductionState& state, Value* stack);
  Values into_second_tree(const ReductionState& state, Value* number, const Values& block, Value* stack);
  Value* slot_of_block(const ReductionState& state, Value* number);
  Value* slot_component(Value* slot, unsigned index) { return b_.element(b_.getInt64Ty(), slot, index); }

  Emission& e_;
  CodeBuilder& b_;
  const bool splits_;
  llvm::SmallVector<Digit, 4> outer_, blocks_;
  Value *passes_, *total_;
  Value *is_partial_ = nullptr, *is_finish_ = nullptr;
  Value *first_block_, *last_block_;
  Value* second_tree_used_;
};

RowKernel::RowKernel(Emission& e) : e_(e), b_(e.b), splits_(can_split(e.kernel, e.schedule)) {
  e.add_scratch(1, 1);
  for (const unsigned axis : e.outer_reduced_axes()) outer_.push_back(e.accesses.axis_digit(axis));
  blocks_ = outer_;
  blocks_.push_back(e.accesses.block_digit(e.vector_axis(), kReductionBlock));
  passes_ = e.product(outer_);
  total_ = e.product(blocks_);
  first_block_ = b_.i64(0), last_block_ = total_;
  second_tree_used_ = b_.CreateICmpSGT(total_, b_.i64(1));
  if (!splits_) return;
  const auto is = [&](Part part) { return b_.CreateICmpEQ(e.part, b_.getInt64(static_cast<std::uint64_t>(part))); };
  is_partial_ = is(Part::partial), is_finish_ = is(Part::finish);
  first_block_ = b_.CreateSelect(is_partial_, e.column_begin, b_.i64(0));
  last_block_ = b_.CreateSelect(is_partial_, e.column_end, b_.CreateSelect(is_finish_, b_.i64(0), total_));
  second_tree_used_ = b_.CreateAnd(second_tree_used_, b_.CreateNot(is_partial_));
  // A call for blocks or their merge is about one row.
  e.row_end = b_.CreateSelect(is(Part::whole), e.row_end, b_.CreateAdd(e.row_begin, b_.i64(1)));
}

void RowKernel::row(const Values& addresses, Environment& env) {
  for (const KernelSchedule::Stage& stage : e_.schedule.stages) {
    e_.enter(stage, env);
    if (stage.reductions.empty())
      element_stage(stage, addresses, env);
    else
      ReductionState(e_, stage.reductions).finish_uniform(reduce(stage, addresses, env), env);
    const auto after = [&] {
      e_.evaluator.uniforms(stage.row_values, 0xffff, false, addresses, env);
      for (const std::uint16_t s : stage.row_stores)
        e_.accesses.store_uniform(e_.kernel.stores[s].access, addresses[e_.kernel.stores[s].access],
                                  env.values[e_.kernel.stores[s].value].uniform);
      return Values{};
    };
    if (splits_)
      b_.when(b_.CreateNot(is_partial_), {}, after);
    else
      after();
  }
}

void RowKernel::element_stage(const KernelSchedule::Stage& stage, const Values& addresses, const Environment& at_row) {
  GroupPlan plan = e_.group_plan(stage, 2, 4);
  if (e_.prefers_one_copy(stage)) plan = {std::min(plan.width, 2u), true};
  // While the last stage writes, memory is free to read the next row: softmax of 4096 x 1024 takes 0.86 of the time.
  const bool prefetches = e_.wide && &stage == &e_.schedule.stages.back() && outer_.empty() && e_.vector_axis() > 0;
  Value* const size = e_.accesses.size(e_.vector_axis());
  e_.accesses.linear_loop(outer_, b_.i64(0), passes_, addresses, {},
                          [&](const Values& at, Value*, Value*, const Values&) {
                            Environment env = at_row;
                            e_.evaluator.uniforms(stage.element_values, 0xffff, false, at, env);
                            const auto body = [&](const Span& span, unsigned vectors) {
                              Environment here = env;
                              const Group group{at, span, 0, vectors};
                              e_.evaluator.group(stage.element_values, group, here);
                              e_.element_stores(stage, here, group);
                              if (prefetches && vectors == plan.width)
                                e_.accesses.prefetch_next(e_.vector_axis() - 1, at, span, vectors);
                            };
                            e_.columns(stage, env, at, b_.i64(0), size, plan, body);
                            return Values{};
                          });
}

void RowKernel::to_stack(const ReductionState& state, const Values& lanes, Value* stack) {
  for (unsigned c = 0; c < state.components(); ++c)
    for (std::uint64_t v = 0; v < stack_vectors(); ++v)
      b_.store_value(lanes[c * stack_vectors() + v], component(stack, c), v);
}

Values RowKernel::from_stack(const ReductionState& state, Value* stack) {
  Values lanes;
  for (unsigned c = 0; c < state.components(); ++c)
    for (std::uint64_t v = 0; v < stack_vectors(); ++v)
      lanes.push_back(b_.load_value(vector_type(state.type(c)), component(stack, c), v));
  return lanes;
}

Values RowKernel::into_second_tree(const ReductionState& state, Value* number, const Values& block, Value* stack) {
  Value* const at = b_.CreateAnd(number, b_.i64(kReductionLanes - 1));
  Values left;
  for (unsigned c = 0; c < state.components(); ++c)
    left.push_back(b_.load_value(value_type(b_.getContext(), state.type(c), 1), lane(state, stack, c, at), 0));
  const Values merged = state.combined(left, block, 0, 1);
  for (unsigned c = 0; c < state.components(); ++c) b_.store_value(merged[c], lane(state, stack, c, at), 0);
  return {};
}

Values RowKernel::reduce(const KernelSchedule::Stage& stage, const Values& addresses, const Environment& env) {
  const ReductionState state(e_, stage.reductions);
  Value* const second_tree = stack_of(state);
  b_.when(second_tree_used_, {}, [&] {
    to_stack(state, state.identity(static_cast<unsigned>(stack_vectors()), b_.lanes()), second_tree);
    return Values{};
  });
  Values result = state.identity(1, 1);
  if (splits_) result = blocks_of_others(state, result, second_tree);
  // The second tree is merged by one more turn of the loop, so that the code of merging is there once.
  Value* const turns = b_.CreateAdd(last_block_, b_.CreateZExt(second_tree_used_, b_.getInt64Ty()));
  Value* const size = e_.accesses.size(e_.vector_axis());
  return e_.accesses.linear_loop(
      blocks_, first_block_, turns, addresses, result,
      [&](const Values& at, Value* number, Value* along_axis, const Values&) {
        Value* const is_block = b_.CreateICmpSLT(number, last_block_);
        Value* const rest = b_.CreateSub(size, b_.CreateMul(along_axis, b_.i64(kReductionBlock)));
        Value* const length = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rest, b_.i64(kReductionBlock));
        // Past the last block there is nothing to read, not even what is the same all along a block.
        Values reachable = at;
        for (unsigned a = 0; a < at.size(); ++a)
          if (at[a] != addresses[a]) reachable[a] = b_.CreateSelect(is_block, at[a], addresses[a]);
        Environment of_block = env;
        e_.evaluator.uniforms(stage.element_values, 0xffff, false, reachable, of_block);
        const Values one = state.merged(
            block(stage, state, at, b_.CreateSelect(is_block, length, b_.i64(0)), is_block, second_tree, of_block));
        if (splits_) {
          b_.when(is_partial_, {}, [&] {
            Value* const slot = slot_of_block(state, number);
            for (unsigned c = 0; c < state.components(); ++c) b_.store_value(one[c], slot_component(slot, c), 0);
            return Values{};
          });
        }
        b_.when(b_.CreateAnd(second_tree_used_, is_block), {},
                [&] { return into_second_tree(state, number, one, second_tree); });
        return one;
      });
}

Value* RowKernel::slot_of_block(const ReductionState& state, Value* number) {
  Value* const field = b_.element(b_.getInt8Ty(), e_.launch, offsetof(KernelLaunch, partials));
  Value* const states = b_.CreateAlignedLoad(b_.getPtrTy(), field, llvm::Align(8));
  return b_.CreateGEP(b_.getInt64Ty(), states, b_.CreateMul(number, b_.i64(state.components())));
}

Values RowKernel::blocks_of_others(const ReductionState& state, const Values& identity, Value* second_tree) {
  return b_.when(is_finish_, identity, [&] {
    return b_.loop(b_.i64(0), total_, 1, identity, [&](Value* number, const Values&) {
      Value* const slot = slot_of_block(state, number);
      Values one;
      for (unsigned c = 0; c < state.components(); ++c)
        one.push_back(b_.load_value(value_type(b_.getContext(), state.type(c), 1), slot_component(slot, c), 0));
      b_.when(second_tree_used_, {}, [&] { return into_second_tree(state, number, one, second_tree); });
      return one;
    });
  });
}

Values RowKernel::accumulate(const KernelSchedule::Stage& stage, const ReductionState& state, const Group& group,
                             Environment env, const Values& lanes) {
  e_.evaluator.group(stage.element_values, group, env);
  e_.element_stores(stage, env, group);
  const auto vectors = static_cast<unsigned>(lanes.size() / state.components());
  return state.combined(lanes, state.lifted(env, vectors, group.first, group.last), group.first, group.last);
}

Values RowKernel::block(const KernelSchedule::Stage& stage, const ReductionState& finished, const Values& addresses,
                        Value* length, Value* is_block, Value* second_tree, const Environment& env) {
  const ReductionState state(e_, stage.reductions, ReductionState::Of::block);
  const auto groups = static_cast<unsigned>(stack_vectors());
  GroupPlan plan = e_.group_plan(stage, groups * state.components(), groups);
  plan.width = std::bit_floor(plan.width);
  const unsigned program = program_length(stage);
  const Values identity = state.identity(groups, b_.lanes());
  Value* const stack = stack_of(state);
  const auto of_block_or_second_tree = [&](const Values& lanes) {
    return b_.when(b_.CreateNot(is_block), state.widened(lanes), [&] { return from_stack(finished, second_tree); });
  };
  const bool one_copy = e_.prefers_one_copy(stage);
  if (!e_.affords(program * (groups + (one_copy ? 0 : 1)), kFewInstructions, kMostInstructions)) {
    if (!e_.wide && plan.masked) plan.width = 1;
    to_stack(state, identity, stack);
    through_stack(stage, state, addresses, b_.i64(0), length, env, stack, plan);
    if (state.is_narrow()) return of_block_or_second_tree(from_stack(state, stack));
    return from_stack(state, b_.CreateSelect(is_block, stack, second_tree));
  }
  // Lanes that wait on the stack for each vector of a rest cost more than the vectors that have no element.
  const bool rest_in_registers =
      !one_copy && e_.affords(2 * program * groups, kFewInstructions, kMostInstructions) && e_.has_masked(stage);
  plan.width = std::min(plan.width, 2u);  // four at a time ask for lines in bursts: sum_chain10 takes 1.2 of the time
  const auto add_groups = [&](const Span& span, Values lanes) {
    for (unsigned first = 0; first < groups; first += plan.width)
      lanes = accumulate(stage, state, {addresses, span, first, first + plan.width}, env, lanes);
    return lanes;
  };
  if (one_copy) {
    Values at_start = identity;
    if (!state.is_narrow()) {
      to_stack(state, identity, stack);  // so that no branch is needed here
      at_start = from_stack(state, b_.CreateSelect(is_block, stack, second_tree));
    }
    const Values lanes = b_.loop(b_.i64(0), length, kReductionLanes, at_start, [&](Value* index, const Values& before) {
      const Span span = e_.partial_span(index, b_.CreateSub(length, index), groups);
      Values after = add_groups(span, before);
      for (unsigned i = 0; i < after.size(); ++i)
        after[i] = b_.CreateSelect(span.masks[i % groups], after[i], before[i]);
      return after;
    });
    return state.is_narrow() ? of_block_or_second_tree(lanes) : lanes;
  }
  Value* const whole = b_.CreateAnd(length, b_.i64(-std::int64_t{kReductionLanes}));
  const Values lanes = b_.loop(b_.i64(0), whole, kReductionLanes, identity, [&](Value* index, const Values& before) {
    return add_groups({.index = index}, before);
  });
  const Values all = b_.when(b_.CreateICmpSLT(whole, length), lanes, [&] {
    if (rest_in_registers) return rest(stage, state, addresses, whole, b_.CreateSub(length, whole), env, lanes);
    to_stack(state, lanes, stack);
    through_stack(stage, state, addresses, whole, length, env, stack, {1, true});
    return from_stack(state, stack);
  });
  return of_block_or_second_tree(all);
}

Values RowKernel::rest(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                       Value* begin, Value* left, const Environment& env, Values lanes) {
  const auto vectors = static_cast<unsigned>(stack_vectors());
  for (unsigned v = 0; v < vectors; ++v) {
    Value* const before_it = b_.i64(std::int64_t{v} * b_.lanes());
    Values own;
    for (unsigned c = 0; c < state.components(); ++c) own.push_back(lanes[c * vectors + v]);
    const Values after = b_.when(b_.CreateICmpSGT(left, before_it), own, [&] {
      const Span span = e_.partial_span(b_.CreateAdd(begin, before_it), b_.CreateSub(left, before_it), 1);
      Values reached = accumulate(stage, state, {addresses, span, 0, 1}, env, own);
      for (unsigned c = 0; c < reached.size(); ++c) reached[c] = b_.CreateSelect(span.masks[0], reached[c], own[c]);
      return reached;
    });
    for (unsigned c = 0; c < state.components(); ++c) lanes[c * vectors + v] = after[c];
  }
  return lanes;
}

unsigned RowKernel::program_length(const KernelSchedule::Stage& stage) const {
  std::size_t length = e_.vector_count(stage);
  for (const std::uint16_t r : stage.reductions) length += e_.kernel.reductions[r].combine.program.size();
  return static_cast<unsigned>(length);
}

/// Reduces elements [begin, length) of a block, `begin` being a multiple of kReductionLanes, with the lanes on the
/// stack, where the vectors that a group belongs to need not be known when code is built.
void RowKernel::through_stack(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                              Value* begin, Value* length, const Environment& env, Value* stack, GroupPlan plan) {
  e_.columns(begin, length, plan, [&](const Span& span, unsigned width) {
    Value* const first_lane = b_.CreateAnd(span.index, b_.i64(kReductionLanes - 1));
    Values before;
    for (unsigned c = 0; c < state.components(); ++c)
      for (unsigned v = 0; v < width; ++v)
        before.push_back(b_.load_value(vector_type(state.type(c)), lane(state, stack, c, first_lane), v));
    const Values after = accumulate(stage, state, {addresses, span, 0, width}, env, before);
    for (unsigned c = 0; c < state.components(); ++c)
      for (unsigned v = 0; v < width; ++v) {
        const unsigned at = c * width + v;
        Value* const kept = span.masks.empty() ? after[at] : b_.CreateSelect(span.masks[v], after[at], before[at]);
        b_.store_value(kept, lane(state, stack, c, first_lane), v);
      }
  });
}

}  // namespace

void emit_row_kernel(Emission& e) { RowKernel(e).emit(); }

}  // namespace fermata::jit

// Kernels whose vector axis is reduced: lanes run along the reduction, in the tree that ir/kernel.h fixes.
//
// The kReductionLanes lanes of a block are a few vectors in registers. A row of one block, the common case, never
// touches the second tree; that one lives on the stack. The same code does a whole row, some blocks of it, or the merge
// of blocks that others did (jit::Part).
#include <algorithm>

#include "codegen_cpu/jit/plugin.h"
#include "codegen_cpu/jit/reduction_state.h"

namespace fermata::jit {
namespace {

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
  void blocks_of_others(const ReductionState& state, Values& result, Value* second_tree);
  /// One block: a scalar per component.
  Values block(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses, Value* length,
               const Environment& env);
  Values tail(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses, Value* begin,
              Value* length, const Environment& env, const Values& lanes, Value* stack);
  /// Computes a group and adds it to lanes [first, last).
  Values accumulate(const KernelSchedule::Stage& stage, const ReductionState& state, const Group& group, Environment env,
                    const Values& lanes);

  Value* stack_of(const ReductionState& state) { return b_.stack(b_.getInt64Ty(), state.components() * kReductionLanes, 64); }
  std::uint64_t stack_vectors() const { return kReductionLanes / b_.lanes(); }
  Type* vector_type(DType dtype) const { return value_type(b_.getContext(), dtype, b_.lanes()); }
  Value* component(Value* stack, unsigned index) {
    return b_.CreateConstGEP1_64(b_.getInt64Ty(), stack, std::uint64_t{index} * kReductionLanes);
  }
  Value* lane(const ReductionState& state, Value* stack, unsigned index, Value* number) {
    return b_.CreateGEP(memory_type(b_.getContext(), state.type(index), 1), component(stack, index), number);
  }
  void to_stack(const ReductionState& state, const Values& lanes, Value* stack);
  Values from_stack(const ReductionState& state, Value* stack);
  void into_second_tree(const ReductionState& state, Value* number, const Values& block, Value* stack);

  Emission& e_;
  CodeBuilder& b_;
  const bool splits_;
  llvm::SmallVector<Digit, 4> outer_, blocks_;
  Value *passes_, *total_;
  Value *is_whole_ = nullptr, *is_partial_ = nullptr, *is_finish_ = nullptr;
  Value *first_block_, *last_block_;
  Value* second_tree_used_;
};

RowKernel::RowKernel(Emission& e) : e_(e), b_(e.b), splits_(can_split(e.kernel, e.schedule)) {
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
    if (stage.reductions.empty()) element_stage(stage, addresses, env);
    else ReductionState(e_, stage.reductions).finish_uniform(reduce(stage, addresses, env), env);
    const auto after = [&] {
      e_.evaluator.uniforms(stage.row_values, 0xffff, false, addresses, env);
      for (const std::uint16_t s : stage.row_stores)
        e_.accesses.store_uniform(e_.kernel.stores[s].access, addresses[e_.kernel.stores[s].access],
                                  env.values[e_.kernel.stores[s].value].uniform);
      return Values{};
    };
    if (splits_) b_.when(b_.CreateNot(is_partial_), {}, after);
    else after();
  }
}

void RowKernel::element_stage(const KernelSchedule::Stage& stage, const Values& addresses, const Environment& at_row) {
  const unsigned width = e_.group_width(stage.element_values, 2, 8);
  Value* const size = e_.accesses.size(e_.vector_axis());
  e_.accesses.linear_loop(outer_, b_.i64(0), passes_, addresses, {}, [&](const Values& at, Value*, Value*, const Values&) {
    Environment env = at_row;
    e_.evaluator.uniforms(stage.element_values, 0xffff, false, at, env);
    e_.columns(b_.i64(0), size, width, [&](const Span& span, unsigned vectors) {
      Environment here = env;
      const Group group{at, span, 0, vectors};
      e_.evaluator.group(stage.element_values, group, here);
      e_.store(stage.element_stores, here, group);
    });
    return Values{};
  });
}

void RowKernel::to_stack(const ReductionState& state, const Values& lanes, Value* stack) {
  for (unsigned c = 0; c < state.components(); ++c)
    for (std::uint64_t v = 0; v < stack_vectors(); ++v) b_.store_value(lanes[c * stack_vectors() + v], component(stack, c), v);
}

Values RowKernel::from_stack(const ReductionState& state, Value* stack) {
  Values lanes;
  for (unsigned c = 0; c < state.components(); ++c)
    for (std::uint64_t v = 0; v < stack_vectors(); ++v)
      lanes.push_back(b_.load_value(vector_type(state.type(c)), component(stack, c), v));
  return lanes;
}

void RowKernel::into_second_tree(const ReductionState& state, Value* number, const Values& block, Value* stack) {
  b_.when(second_tree_used_, {}, [&] {
    Value* const at = b_.CreateAnd(number, b_.i64(kReductionLanes - 1));
    Values left;
    for (unsigned c = 0; c < state.components(); ++c)
      left.push_back(b_.load_value(value_type(b_.getContext(), state.type(c), 1), lane(state, stack, c, at), 0));
    const Values merged = state.combined(left, block, 0, 1);
    for (unsigned c = 0; c < state.components(); ++c) b_.store_value(merged[c], lane(state, stack, c, at), 0);
    return Values{};
  });
}

Values RowKernel::reduce(const KernelSchedule::Stage& stage, const Values& addresses, const Environment& env) {
  const ReductionState state(e_, stage.reductions);
  Value* const second_tree = stack_of(state);
  b_.when(second_tree_used_, {}, [&] {
    to_stack(state, state.identity(static_cast<unsigned>(stack_vectors()), b_.lanes()), second_tree);
    return Values{};
  });
  Value* const size = e_.accesses.size(e_.vector_axis());
  Values result = e_.accesses.linear_loop(
      blocks_, first_block_, last_block_, addresses, state.identity(1, 1),
      [&](const Values& at, Value* number, Value* along_axis, const Values&) {
        Value* const rest = b_.CreateSub(size, b_.CreateMul(along_axis, b_.i64(kReductionBlock)));
        Value* const length = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, rest, b_.i64(kReductionBlock));
        const Values one = block(stage, state, at, length, env);
        if (splits_) {
          b_.when(is_partial_, {}, [&] {
            Value* const states = b_.CreateAlignedLoad(
                b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getInt8Ty(), e_.launch, offsetof(KernelLaunch, partials)), llvm::Align(8));
            Value* const slot = b_.CreateGEP(b_.getInt64Ty(), states, b_.CreateMul(number, b_.i64(state.components())));
            for (unsigned c = 0; c < state.components(); ++c)
              b_.store_value(one[c], b_.CreateConstGEP1_64(b_.getInt64Ty(), slot, c), 0);
            return Values{};
          });
        }
        into_second_tree(state, number, one, second_tree);
        return one;
      });
  if (splits_) blocks_of_others(state, result, second_tree);
  return b_.when(second_tree_used_, result, [&] { return state.merged(from_stack(state, second_tree)); });
}

void RowKernel::blocks_of_others(const ReductionState& state, Values& result, Value* second_tree) {
  result = b_.when(is_finish_, result, [&] {
    Value* const states = b_.CreateAlignedLoad(
        b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getInt8Ty(), e_.launch, offsetof(KernelLaunch, partials)), llvm::Align(8));
    return b_.loop(b_.i64(0), total_, 1, result, [&](Value* number, const Values&) {
      Value* const slot = b_.CreateGEP(b_.getInt64Ty(), states, b_.CreateMul(number, b_.i64(state.components())));
      Values one;
      for (unsigned c = 0; c < state.components(); ++c)
        one.push_back(b_.load_value(value_type(b_.getContext(), state.type(c), 1),
                                    b_.CreateConstGEP1_64(b_.getInt64Ty(), slot, c), 0));
      into_second_tree(state, number, one, second_tree);
      return one;
    });
  });
}

Values RowKernel::accumulate(const KernelSchedule::Stage& stage, const ReductionState& state, const Group& group,
                             Environment env, const Values& lanes) {
  e_.evaluator.group(stage.element_values, group, env);
  e_.store(stage.element_stores, env, group);
  const auto vectors = static_cast<unsigned>(lanes.size() / state.components());
  return state.combined(lanes, state.lifted(env, vectors, group.first, group.last), group.first, group.last);
}

Values RowKernel::block(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                        Value* length, const Environment& at_row) {
  Environment env = at_row;
  e_.evaluator.uniforms(stage.element_values, 0xffff, false, addresses, env);
  const auto groups = static_cast<unsigned>(stack_vectors());
  const unsigned width = e_.group_width(stage.element_values, groups * state.components(), groups);
  Value* const stack = stack_of(state);
  Value* const whole = b_.CreateAnd(length, b_.i64(-std::int64_t{kReductionLanes}));
  const Values lanes = b_.loop(b_.i64(0), whole, kReductionLanes, state.identity(groups, b_.lanes()),
                               [&](Value* index, const Values& carried) {
                                 Values now = carried;
                                 for (unsigned first = 0; first < groups; first += width)
                                   now = accumulate(stage, state, {addresses, {.index = index}, first, first + width}, env, now);
                                 return now;
                               });
  return state.merged(b_.when(b_.CreateICmpSLT(whole, length), lanes, [&] {
    return tail(stage, state, addresses, whole, length, env, lanes, stack);
  }));
}

/// The last elements of a block, vector by vector: lanes wait on the stack, so that one copy of the code does.
Values RowKernel::tail(const KernelSchedule::Stage& stage, const ReductionState& state, const Values& addresses,
                       Value* begin, Value* length, const Environment& env, const Values& lanes, Value* stack) {
  to_stack(state, lanes, stack);
  const std::int64_t count = b_.lanes();
  b_.loop(begin, length, count, {}, [&](Value* index, const Values&) {
    Value* const left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(length, index), b_.i64(count));
    Value* const mask = b_.mask_below(left);
    Value* const first_lane = b_.CreateSub(index, begin);
    Values before;
    for (unsigned c = 0; c < state.components(); ++c)
      before.push_back(b_.load_value(vector_type(state.type(c)), lane(state, stack, c, first_lane), 0));
    const Values after = accumulate(stage, state, {addresses, {index, left, mask}, 0, 1}, env, before);
    for (unsigned c = 0; c < state.components(); ++c)
      b_.store_value(b_.CreateSelect(mask, after[c], before[c]), lane(state, stack, c, first_lane), 0);
    return Values{};
  });
  return from_stack(state, stack);
}

}  // namespace

void emit_row_kernel(Emission& e) { RowKernel(e).emit(); }

}  // namespace fermata::jit

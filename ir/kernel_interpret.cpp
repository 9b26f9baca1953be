// Runs a kernel description point by point: the oracle of every code generator.
//
// Everything here follows the comments of ir/kernel.h to the letter and nothing is clever. A row of the machine is one
// combination of parallel positions, the position along a parallel vector axis included.
#include <algorithm>
#include <array>
#include <bit>

#include "ir/error.h"
#include "ir/kernel.h"
#include "ir/scalar_interpreter.h"

namespace fermata {
namespace {

/// A reduction's state: one slot per component.
using State = std::vector<std::uint64_t>;

struct Combiner {
  FormulaInterpreter formula;
  State identity;
  State parameters{};
  void combine(State& left, const State& right) {
    parameters.assign(left.begin(), left.end());
    parameters.insert(parameters.end(), right.begin(), right.end());
    const auto merged = formula(parameters);
    left.assign(merged.begin(), merged.end());
  }
};

class LaneTree {
 public:
  explicit LaneTree(Combiner& combiner) : combiner_(combiner) { lanes_.fill(combiner.identity); }
  void push(const State& item) { combiner_.combine(lanes_[count_++ % kReductionLanes], item); }
  State merge() {
    for (unsigned half = kReductionLanes / 2; half > 0; half /= 2)
      for (unsigned lane = 0; lane < half; ++lane) combiner_.combine(lanes_[lane], lanes_[lane + half]);
    return lanes_[0];
  }

 private:
  Combiner& combiner_;
  std::array<State, kReductionLanes> lanes_;
  std::size_t count_ = 0;
};

/// What a block is: the innermost reduced axis, and how much of it belongs to one block.
struct Blocks {
  unsigned axis;
  std::int64_t length, per_pass, count;
};
Blocks blocks_of(const Kernel& kernel, const std::int64_t* sizes) {
  Blocks blocks{static_cast<unsigned>(std::bit_width(static_cast<unsigned>(kernel.reduced)) - 1),
                kernel.is_row_kernel() ? kReductionBlock : kColumnBlock, 0, 0};
  blocks.per_pass = (sizes[blocks.axis] + blocks.length - 1) / blocks.length;
  blocks.count = blocks.per_pass;
  for (unsigned axis = 0; axis < blocks.axis; ++axis)
    if (kernel.is_reduced(axis)) blocks.count *= sizes[axis];
  return blocks;
}

class Machine {
 public:
  Machine(const Kernel& kernel, const KernelLaunch& launch)
      : kernel_(kernel),
        launch_(launch),
        schedule_(schedule(kernel)),
        steps_(scalar_steps(kernel.program)),
        values_(kernel.program.size()) {
    for (const Reduction& reduction : kernel.reductions) {
      combiners_.push_back({FormulaInterpreter(reduction.combine), reduction.identity});
      finished_.push_back(reduction.identity);
    }
  }

  void run() {
    const unsigned vector_axis = kernel_.rank - 1u;
    for (std::int64_t row = launch_.row_begin; row < launch_.row_end; ++row) {
      set_row(row);
      if (kernel_.is_row_kernel()) {
        run_row();
        continue;
      }
      for (std::int64_t column = launch_.column_begin; column < launch_.column_end; ++column) {
        point_[vector_axis] = column;
        run_row();
      }
    }
  }

  void run_positions() {
    const std::vector<ValueId> ids = values_of_positions();
    std::int64_t points = 1;
    for (unsigned axis = 0; axis < kernel_.rank; ++axis) points *= std::max<std::int64_t>(launch_.sizes[axis], 1);
    for (std::int64_t i = 0; i < points; ++i) {
      std::int64_t rest = i;
      for (unsigned axis = kernel_.rank; axis-- > 0;) {
        const std::int64_t size = std::max<std::int64_t>(launch_.sizes[axis], 1);
        point_[axis] = rest % size, rest /= size;
      }
      compute(ids);
    }
  }

  void run_partial() {
    set_row(launch_.row_begin);
    compute(schedule_.row_prologue);
    auto* out = static_cast<std::uint64_t*>(launch_.partials) + launch_.column_begin * slots_per_block();
    for (std::int64_t block = launch_.column_begin; block < launch_.column_end; ++block)
      for (const State& state : reduce_block(schedule_.stages[0], block))
        out = std::copy(state.begin(), state.end(), out);
  }

  void run_finish() {
    set_row(launch_.row_begin);
    compute(schedule_.row_prologue);
    const auto& stage = schedule_.stages[0];
    const auto* slots = static_cast<const std::uint64_t*>(launch_.partials);
    merge(stage, blocks_of(kernel_, launch_.sizes).count, [&](std::int64_t block) {
      const auto* from = slots + block * slots_per_block();
      std::vector<State> states;
      for (const std::uint16_t r : stage.reductions) {
        states.emplace_back(from, from + kernel_.reductions[r].types.size());
        from += kernel_.reductions[r].types.size();
      }
      return states;
    });
    finish_row(stage);
  }

 private:
  /// Positions, and what they are computed from, where none of it is along an empty axis or of a reduction.
  std::vector<ValueId> values_of_positions() const {
    std::uint16_t empty = 0;
    for (unsigned axis = 0; axis < kernel_.rank; ++axis)
      if (launch_.sizes[axis] == 0) empty = static_cast<std::uint16_t>(empty | 1u << axis);
    const ScalarProgram& program = kernel_.program;
    std::vector<bool> exists(program.size()), needed(program.size());
    const auto operands = [&](ValueId id) { return std::array{program[id].a, program[id].b, program[id].c}; };
    for (ValueId id = 0; id < program.size(); ++id) {
      const Instr& instr = program[id];
      const bool reads = has_access(instr.prim);
      exists[id] = instr.prim != Prim::reduced && (!reads || (kernel_.accesses[instr.index].axes & empty) == 0);
      for (const ValueId from : operands(id)) exists[id] = exists[id] && (from == kNoValue || exists[from]);
    }
    for (auto id = static_cast<ValueId>(program.size()); id-- > 0;) {
      needed[id] = exists[id] && (needed[id] || program[id].prim == Prim::position);
      if (!needed[id]) continue;
      for (const ValueId from : operands(id))
        if (from != kNoValue) needed[from] = true;
    }
    std::vector<ValueId> ids;
    for (ValueId id = 0; id < program.size(); ++id)
      if (needed[id]) ids.push_back(id);
    return ids;
  }

  std::int64_t slots_per_block() const { return static_cast<std::int64_t>(interpret_state_bytes(kernel_) / 8); }

  void set_row(std::int64_t row) {
    const unsigned outer = kernel_.is_row_kernel() ? kernel_.rank : kernel_.rank - 1u;
    for (unsigned axis = outer; axis-- > 0;) {
      if (kernel_.is_reduced(axis)) continue;
      point_[axis] = row % launch_.sizes[axis];
      row /= launch_.sizes[axis];
    }
  }

  std::int64_t offset(std::uint16_t access) const {
    const std::int64_t* strides = launch_.strides + access * std::size_t{kernel_.rank};
    const Access& description = kernel_.accesses[access];
    std::int64_t offset = description.address_only ? launch_.offsets[access] : 0;
    for (unsigned axis = 0; axis < kernel_.rank; ++axis)
      if ((description.axes >> axis & 1u) != 0) offset += point_[axis] * strides[axis];
    return offset;
  }
  char* element(std::uint16_t access) const {
    const auto bytes = static_cast<std::int64_t>(byte_size(kernel_.accesses[access].dtype));
    return static_cast<char*>(launch_.pointers[access]) + offset(access) * bytes;
  }

  std::uint64_t value(ValueId id) const {
    const Instr& instr = kernel_.program[id];
    switch (instr.prim) {
      case Prim::input: return load_slot(instr.type, element(instr.index));
      case Prim::gather: {
        const auto distance = static_cast<std::int64_t>(values_[instr.a] * byte_size(instr.type));
        return load_slot(instr.type, element(instr.index) + distance);
      }
      case Prim::guarded_input: {
        const auto place = [&](ValueId of) { return static_cast<std::int64_t>(values_[of]); };
        const bool is_here = place(instr.b) <= place(instr.a) && place(instr.a) < place(instr.c);
        return is_here ? load_slot(instr.type, element(instr.index)) : 0;
      }
      case Prim::position: check_position(id); break;
      case Prim::offset: return static_cast<std::uint64_t>(offset(instr.index));
      case Prim::scalar: return load_slot(instr.type, &launch_.scalars[instr.index]);
      case Prim::constant: return instr.bits;
      case Prim::reduced: return finished_[instr.index][instr.bits];
      default: break;
    }
    const ScalarStep& step = steps_[id];
    return step.function(values_[step.a], values_[step.b], values_[step.c]);
  }
  void check_position(ValueId id) const {
    const auto at = static_cast<std::int64_t>(values_[kernel_.program[id].a]),
               size = static_cast<std::int64_t>(values_[kernel_.program[id].b]);
    LaunchFailure* const failure = launch_.failure;
    if ((at >= -size && at < size) || failure == nullptr) return;
    failure->failed = 1;
    if (id < failure->value)
      failure->value = id, failure->position = at, failure->number = offset(kernel_.program[id].index);
  }
  void compute(const std::vector<ValueId>& ids) {
    for (const ValueId id : ids) values_[id] = value(id);
  }
  void store(const std::vector<std::uint16_t>& stores) {
    for (const std::uint16_t s : stores) {
      const Store& store = kernel_.stores[s];
      store_slot(kernel_.accesses[store.access].dtype, element(store.access), values_[store.value]);
    }
  }

  void run_row() {
    compute(schedule_.row_prologue);
    for (const auto& stage : schedule_.stages) {
      if (kernel_.reduced == 0) {
        compute(stage.element_values);
        store(stage.element_stores);
        continue;
      }
      merge(stage, blocks_of(kernel_, launch_.sizes).count,
            [&](std::int64_t block) { return reduce_block(stage, block); });
      finish_row(stage);
    }
  }
  void finish_row(const KernelSchedule::Stage& stage) {
    compute(stage.row_values);
    store(stage.row_stores);
  }

  /// Passes over one block of the reduced axes: values and stores at each point, and the block's state per reduction.
  std::vector<State> reduce_block(const KernelSchedule::Stage& stage, std::int64_t number) {
    const Blocks blocks = blocks_of(kernel_, launch_.sizes);
    std::int64_t pass = number / blocks.per_pass;
    for (unsigned axis = blocks.axis; axis-- > 0;) {
      if (!kernel_.is_reduced(axis)) continue;
      point_[axis] = pass % launch_.sizes[axis];
      pass /= launch_.sizes[axis];
    }
    std::vector<LaneTree> trees;
    std::vector<State> states;
    for (const std::uint16_t r : stage.reductions) {
      if (kernel_.is_row_kernel()) trees.emplace_back(combiners_[r]);
      states.push_back(combiners_[r].identity);
    }
    const std::int64_t begin = number % blocks.per_pass * blocks.length;
    const std::int64_t end = std::min(begin + blocks.length, launch_.sizes[blocks.axis]);
    State item;
    for (point_[blocks.axis] = begin; point_[blocks.axis] < end; ++point_[blocks.axis]) {
      compute(stage.element_values);
      store(stage.element_stores);
      for (std::size_t i = 0; i < stage.reductions.size(); ++i) {
        const std::uint16_t r = stage.reductions[i];
        item.clear();
        for (const ValueId id : kernel_.reductions[r].lifted) item.push_back(values_[id]);
        if (kernel_.is_row_kernel())
          trees[i].push(item);
        else
          combiners_[r].combine(states[i], item);
      }
    }
    for (std::size_t i = 0; i < trees.size(); ++i) states[i] = trees[i].merge();
    return states;
  }

  /// Merges the states of `count` blocks, which `block_states` gives in order.
  template <class F> void merge(const KernelSchedule::Stage& stage, std::int64_t count, F&& block_states) {
    const bool by_lanes = kernel_.is_row_kernel() && count > 1;
    std::vector<LaneTree> trees;
    for (const std::uint16_t r : stage.reductions) {
      if (by_lanes) trees.emplace_back(combiners_[r]);
      finished_[r] = combiners_[r].identity;
    }
    for (std::int64_t block = 0; block < count; ++block) {
      const std::vector<State> states = block_states(block);
      for (std::size_t i = 0; i < stage.reductions.size(); ++i) {
        const std::uint16_t r = stage.reductions[i];
        if (count == 1)
          finished_[r] = states[i];
        else if (by_lanes)
          trees[i].push(states[i]);
        else
          combiners_[r].combine(finished_[r], states[i]);
      }
    }
    for (std::size_t i = 0; i < trees.size(); ++i) finished_[stage.reductions[i]] = trees[i].merge();
  }

  const Kernel& kernel_;
  const KernelLaunch& launch_;
  KernelSchedule schedule_;
  std::vector<ScalarStep> steps_;
  std::vector<std::uint64_t> values_;  // per program value, at the current point
  std::array<std::int64_t, kMaxRank> point_{};
  std::vector<Combiner> combiners_;  // per reduction
  std::vector<State> finished_;      // per reduction, for the current row
};

}  // namespace

std::int64_t reduction_blocks(const Kernel& kernel, const std::int64_t* sizes) {
  return kernel.reduced == 0 ? 1 : blocks_of(kernel, sizes).count;
}

bool can_split(const Kernel& kernel, const KernelSchedule& schedule) {
  return kernel.is_row_kernel() && schedule.stages.size() == 1;
}
bool can_split_columns(const Kernel& kernel, const KernelSchedule& schedule) {
  return kernel.reduced != 0 && !kernel.is_row_kernel() && schedule.stages.size() == 1 &&
         schedule.stages[0].element_stores.empty();
}

std::size_t interpret_state_bytes(const Kernel& kernel) {
  std::size_t slots = 0;
  for (const Reduction& reduction : kernel.reductions) slots += reduction.types.size();
  return 8 * slots;
}

void interpret(const Kernel& kernel, const KernelLaunch& launch) { Machine(kernel, launch).run(); }
void interpret_positions(const Kernel& kernel, const KernelLaunch& launch) { Machine(kernel, launch).run_positions(); }
void interpret_partial(const Kernel& kernel, const KernelLaunch& launch) { Machine(kernel, launch).run_partial(); }
void interpret_finish(const Kernel& kernel, const KernelLaunch& launch) { Machine(kernel, launch).run_finish(); }

}  // namespace fermata

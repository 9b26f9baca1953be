// See spilled_values.h.
#include "codegen_cpu/jit/spilled_values.h"

#include <algorithm>

#include "ir/instr_operands.h"

namespace fermata::jit {
namespace {

/// Costs are in simple operations on a vector. Keeping must save this much: counts of primitives are rough.
constexpr unsigned kStoreCost = 3, kLoadCost = 2, kLeastSaved = 2;
/// More are a sign of a program that spills whatever is done.
constexpr std::size_t kMostKept = 16;

/// Per program value: whether it differs from lane to lane.
std::vector<bool> vector_values(const Kernel& kernel) {
  std::vector<bool> varies(kernel.program.size(), false);
  for (ValueId i = 0; i < kernel.program.size(); ++i) {
    const Instr& instr = kernel.program[i];
    if (instr.prim == Prim::reduced) varies[i] = !kernel.is_row_kernel();
    if (has_access(instr.prim)) varies[i] = (kernel.accesses[instr.index].axes >> (kernel.rank - 1u) & 1u) != 0;
    for_operands(instr, [&](ValueId id) { varies[i] = varies[i] || varies[id]; });
  }
  return varies;
}

bool is_narrow_float(DType dtype) { return is_floating(dtype) && byte_size(dtype) < 4; }

/// What a vector of a value costs, in simple operations.
unsigned cost_of(const Kernel& kernel, const Instr& instr, const std::vector<bool>& is_vector) {
  constexpr unsigned kDivision = 8, kByLane = 12, kFewInstructions = 5;
  const std::size_t bytes = byte_size(instr.type);
  const auto registers = static_cast<unsigned>(std::max<std::size_t>(1, bytes / 4));
  switch (instr.prim) {
    case Prim::constant:
    case Prim::scalar:
    case Prim::reduced: return 0;
    case Prim::gather:
      if (is_vector[instr.a]) return kByLane * registers;
      [[fallthrough]];
    case Prim::guarded_input:
    case Prim::input: return kernel.accesses[instr.index].is_in_order() ? registers : kByLane * registers;
    case Prim::position: return kFewInstructions * registers;
    case Prim::div:
    case Prim::rem:
    case Prim::sqrt: return (is_floating(instr.type) ? 1 : 3) * kDivision * registers;
    case Prim::mul_high: return kFewInstructions * registers;
    case Prim::mul: return (is_floating(instr.type) || bytes < 8 ? 1 : kFewInstructions) * registers;
    case Prim::convert:
      return (is_narrow_float(instr.type) || is_narrow_float(kernel.program[instr.a].type) ? kFewInstructions : 1) *
             registers;
    default: return registers;
  }
}

class Keeper {
 public:
  Keeper(const Kernel& kernel, KernelSchedule& schedule)
      : kernel_(kernel), program_(kernel.program), schedule_(schedule), is_vector_(vector_values(kernel)) {
    for (ValueId i = 0; i < program_.size(); ++i)
      costs_.push_back(is_vector_[i] ? cost_of(kernel, program_[i], is_vector_) : 0);
    for (const KernelSchedule::Stage& stage : schedule.stages) stages_.push_back(uses_in(stage));
  }

  SpilledValues run() {
    for (std::size_t kept = 0; kept < kMostKept; ++kept) {
      const Candidate best = best_candidate();
      if (best.saved < static_cast<int>(kLeastSaved)) break;
      keep(best);
    }
    return finish();
  }

 private:
  enum class State : std::uint8_t { absent, computed, read };
  struct Stage {
    std::vector<State> states;        // per program value
    std::vector<std::uint32_t> uses;  // by what the stage computes, reduces, stores or keeps
  };
  struct Candidate {
    ValueId value = kNoValue;
    std::size_t written = 0;
    int saved = 0;
  };

  Stage uses_in(const KernelSchedule::Stage& stage) const {
    Stage result{std::vector<State>(program_.size(), State::absent), std::vector<std::uint32_t>(program_.size(), 0)};
    for (const ValueId id : stage.element_values) {
      result.states[id] = State::computed;
      for_operands(program_[id], [&](ValueId operand) { ++result.uses[operand]; });
    }
    for (const std::uint16_t r : stage.reductions)
      for (const ValueId id : kernel_.reductions[r].lifted) ++result.uses[id];
    for (const std::uint16_t s : stage.element_stores) ++result.uses[kernel_.stores[s].value];
    return result;
  }

  unsigned cost_in(const Stage& stage, ValueId id) const {
    return stage.states[id] == State::read ? kLoadCost : costs_[id];
  }

  /// What a stage does no more once it reads a value; `undone` collects what was taken from the uses.
  unsigned take_operands(Stage& stage, ValueId value, std::vector<ValueId>& undone) const {
    unsigned saved = costs_[value];
    std::vector<ValueId> work{value};
    while (!work.empty()) {
      const ValueId id = work.back();
      work.pop_back();
      for_operands(program_[id], [&](ValueId operand) {
        undone.push_back(operand);
        if (--stage.uses[operand] > 0 || stage.states[operand] == State::absent) return;
        saved += cost_in(stage, operand);
        if (stage.states[operand] == State::computed) work.push_back(operand);
      });
    }
    return saved;
  }

  int saved_by_reading(std::size_t s, ValueId value) {
    undone_.clear();
    const unsigned saved = take_operands(stages_[s], value, undone_);
    for (const ValueId id : undone_) ++stages_[s].uses[id];
    return static_cast<int>(saved) - static_cast<int>(kLoadCost);
  }

  /// Where a stage uses a value once, and for a value that an earlier stage computes too, keeping that one saves more.
  std::vector<bool> inner_values(std::size_t s, const std::vector<bool>& computed_before) const {
    std::vector<bool> inner(program_.size(), false);
    const Stage& stage = stages_[s];
    for (ValueId id = 0; id < program_.size(); ++id)
      if (stage.states[id] == State::computed && computed_before[id] && is_vector_[id])
        for_operands(program_[id], [&](ValueId operand) { inner[operand] = stage.uses[operand] == 1; });
    return inner;
  }

  Candidate best_candidate() {
    std::vector<int> saved(program_.size(), -static_cast<int>(kStoreCost));
    std::vector<bool> computed_before(program_.size(), false);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<bool> inner = inner_values(s, computed_before);
      for (const ValueId id : schedule_.stages[s].element_values) {
        if (stages_[s].states[id] != State::computed || !is_vector_[id]) continue;
        if (computed_before[id] && !inner[id]) saved[id] += std::max(0, saved_by_reading(s, id));
        computed_before[id] = true;
      }
    }
    const auto best = std::ranges::max_element(saved);
    if (best == saved.end()) return {};
    const auto value = static_cast<ValueId>(best - saved.begin());
    const auto computes = [&](const Stage& stage) { return stage.states[value] == State::computed; };
    return {value, static_cast<std::size_t>(std::ranges::find_if(stages_, computes) - stages_.begin()), *best};
  }

  void keep(const Candidate& chosen) {
    if (std::ranges::find(writes_, chosen.value, &Candidate::value) == writes_.end()) {
      ++stages_[chosen.written].uses[chosen.value];
      writes_.push_back(chosen);
    }
    for (std::size_t s = chosen.written + 1; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      if (stage.states[chosen.value] != State::computed || saved_by_reading(s, chosen.value) <= 0) continue;
      undone_.clear();
      take_operands(stage, chosen.value, undone_);
      stage.states[chosen.value] = State::read;
      for (const ValueId id : undone_)
        if (stage.uses[id] == 0) stage.states[id] = State::absent;
    }
  }

  std::size_t last_read(ValueId value) const {
    std::size_t last = 0;
    for (std::size_t s = 0; s < stages_.size(); ++s)
      if (stages_[s].states[value] == State::read) last = s;
    return last;
  }

  /// Gives every value a slot: in one stage, a group of elements is read before anything is written in its place.
  SpilledValues finish() {
    SpilledValues kept{.slots = {}, .stages = std::vector<SpilledValues::Stage>(stages_.size())};
    std::vector<std::size_t> busy_until;  // per slot
    std::ranges::sort(writes_, {}, &Candidate::written);
    for (const Candidate& write : writes_) {
      const std::size_t last = last_read(write.value);
      if (last == 0) continue;  // what needed it is read itself by now
      const DType type = program_[write.value].type;
      std::uint16_t slot = 0;
      while (slot < kept.slots.size() && (kept.slots[slot] != type || busy_until[slot] > write.written)) ++slot;
      if (slot == kept.slots.size()) kept.slots.push_back(type), busy_until.push_back(0);
      busy_until[slot] = last;
      kept.stages[write.written].written.push_back({write.value, slot});
      for (std::size_t s = write.written + 1; s < stages_.size(); ++s)
        if (stages_[s].states[write.value] == State::read) kept.stages[s].read.push_back({write.value, slot});
    }
    for (std::size_t s = 0; s < stages_.size(); ++s)
      std::erase_if(schedule_.stages[s].element_values,
                    [&](ValueId id) { return stages_[s].states[id] == State::absent; });
    return kept;
  }

  const Kernel& kernel_;
  const ScalarProgram& program_;
  KernelSchedule& schedule_;
  const std::vector<bool> is_vector_;
  std::vector<unsigned> costs_;
  std::vector<Stage> stages_;
  std::vector<Candidate> writes_;
  std::vector<ValueId> undone_;
};

}  // namespace

SpilledValues keep_values(const Kernel& kernel, KernelSchedule& schedule) {
  if (schedule.stages.size() < 2)
    return {.slots = {}, .stages = std::vector<SpilledValues::Stage>(schedule.stages.size())};
  return Keeper(kernel, schedule).run();
}

}  // namespace fermata::jit

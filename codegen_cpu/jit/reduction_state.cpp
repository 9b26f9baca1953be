// See reduction_state.h.
#include "codegen_cpu/jit/reduction_state.h"

namespace fermata::jit {

ReductionState::ReductionState(Emission& e, const std::vector<std::uint16_t>& reductions, Of of)
    : e_(e), reductions_(reductions), of_(of) {
  for (const std::uint16_t r : reductions) {
    if (!narrows(r)) {
      types_.insert(types_.end(), e.kernel.reductions[r].types.begin(), e.kernel.reductions[r].types.end());
      continue;
    }
    types_.push_back(e.narrow_sums.in_block(r, e.b.lanes(), e.b.isa().vector_bits));
    is_narrow_ = is_narrow_ || types_.back() != e.kernel.reductions[r].types[0];
  }
}

Values ReductionState::identity(unsigned vectors, unsigned lanes) const {
  Values state;
  for (const std::uint16_t r : reductions_) {
    const Reduction& reduction = e_.kernel.reductions[r];
    for (std::size_t c = 0; c < reduction.types.size(); ++c) {
      const DType type = types_[state.size() / vectors];
      state.append(vectors, e_.b.constant(type, reduction.identity[c], lanes));
    }
  }
  return state;
}

Values ReductionState::combined(const Values& left, const Values& right, unsigned first, unsigned last) const {
  const std::size_t vectors = left.size() / types_.size();
  Values result = left;
  std::size_t base = 0;
  for (const std::uint16_t r : reductions_) {
    const CodeBuilder::LineScope line(e_.b, e_.evaluator.lines().reduction(r));
    const Reduction& reduction = e_.kernel.reductions[r];
    const std::size_t count = reduction.types.size();
    if (narrows(r)) {
      for (unsigned v = first; v < last; ++v)
        result[base * vectors + v] = e_.b.CreateAdd(left[base * vectors + v], right[base * vectors + v]);
      base += count;
      continue;
    }
    std::vector<Values> operands;
    for (unsigned v = first; v < last; ++v) {
      Values& set = operands.emplace_back();
      for (const Values* side : {&left, &right})
        for (std::size_t c = 0; c < count; ++c) set.push_back((*side)[(base + c) * vectors + v]);
    }
    const std::vector<Values> merged = e_.evaluator.apply(reduction.combine, operands);
    for (unsigned v = first; v < last; ++v)
      for (std::size_t c = 0; c < count; ++c) result[(base + c) * vectors + v] = merged[v - first][c];
    base += count;
  }
  return result;
}

Values ReductionState::lifted(const Environment& env, unsigned vectors, unsigned first, unsigned last) const {
  Values result(types_.size() * vectors);
  std::size_t component = 0;
  for (const std::uint16_t r : reductions_) {
    if (narrows(r)) {
      const ValueId source = e_.narrow_sums.source(r);
      Type* const type = value_type(e_.b.getContext(), types_[component], e_.b.lanes());
      const bool has_sign = is_signed(types_[component]);
      for (unsigned v = first; v < last; ++v)
        result[component * vectors + v] = e_.b.CreateIntCast(e_.evaluator.vector(env, source, v), type, has_sign);
      ++component;
      continue;
    }
    for (const ValueId id : e_.kernel.reductions[r].lifted) {
      for (unsigned v = first; v < last; ++v) result[component * vectors + v] = e_.evaluator.vector(env, id, v);
      ++component;
    }
  }
  return result;
}

Values ReductionState::widened(Values lanes) const {
  const std::size_t vectors = lanes.size() / types_.size();
  std::size_t component = 0;
  for (const std::uint16_t r : reductions_)
    for (const DType finished : e_.kernel.reductions[r].types) {
      if (const DType narrow = types_[component]; narrow != finished)
        for (std::size_t v = component * vectors; v < (component + 1) * vectors; ++v)
          lanes[v] = e_.b.CreateIntCast(lanes[v], value_type(e_.b.getContext(), finished, lanes_of(lanes[v])),
                                        is_signed(narrow));
      ++component;
    }
  return lanes;
}

Values ReductionState::merged(Values lanes) const {
  for (std::size_t vectors = lanes.size() / types_.size(); vectors > 1; vectors /= 2) {
    Values left, right;
    for (std::size_t c = 0; c < types_.size(); ++c) {
      const auto at = lanes.begin() + static_cast<std::ptrdiff_t>(c * vectors);
      const auto middle = at + static_cast<std::ptrdiff_t>(vectors / 2);
      left.append(at, middle);
      right.append(middle, at + static_cast<std::ptrdiff_t>(vectors));
    }
    lanes = combined(left, right, 0, static_cast<unsigned>(vectors / 2));
  }
  // Below the size of the smallest register the upper half moves down and the rest is carried along.
  constexpr unsigned kSmallest = 4;
  for (unsigned count = lanes_of(lanes[0]); count > 1; count /= 2) {
    Values left, right;
    for (Value* vector : lanes) {
      left.push_back(count > kSmallest ? e_.b.half(vector, 0) : vector);
      right.push_back(count > kSmallest ? e_.b.half(vector, 1) : e_.b.shifted_down(vector, count / 2));
    }
    lanes = combined(left, right, 0, 1);
  }
  for (Value*& vector : lanes) vector = e_.b.CreateExtractElement(vector, std::uint64_t{0});
  return lanes;
}

void ReductionState::finish_uniform(const Values& state, Environment& env) const {
  std::size_t at = 0;
  for (const std::uint16_t r : reductions_)
    for (Known& known : env.reduced[r]) e_.evaluator.set_uniform(known, state[at++]);
}

void ReductionState::finish_vectors(const Values& state, unsigned vectors, Environment& env) const {
  std::size_t at = 0;
  for (const std::uint16_t r : reductions_)
    for (Known& known : env.reduced[r]) {
      known.vectors.assign(state.begin() + static_cast<std::ptrdiff_t>(at),
                           state.begin() + static_cast<std::ptrdiff_t>(at + vectors));
      at += vectors;
    }
}

}  // namespace fermata::jit

// The states of the reductions of one stage while code is built: components side by side, one value per vector.
#pragma once

#include "codegen_cpu/jit/emission.h"

namespace fermata::jit {

class ReductionState {
 public:
  ReductionState(Emission& e, const std::vector<std::uint16_t>& reductions);

  unsigned components() const { return static_cast<unsigned>(types_.size()); }
  /// The dtype of a component.
  DType type(unsigned component) const { return types_[component]; }
  /// `vectors` values of `lanes` lanes per component: all of component 0, then of component 1, ...
  Values identity(unsigned vectors, unsigned lanes) const;
  /// Values [first, last) of each component of `left` combined with those of `right`; the rest of `left` unchanged.
  Values combined(const Values& left, const Values& right, unsigned first, unsigned last) const;
  /// What a group contributes, as `vectors` values per component of which [first, last) are set.
  Values lifted(const Environment& env, unsigned vectors, unsigned first, unsigned last) const;
  /// Merges all lanes by halves: one scalar per component.
  Values merged(Values lanes) const;
  /// Makes the finished state known to Prim::reduced.
  void finish_uniform(const Values& state, Environment& env) const;
  void finish_vectors(const Values& state, unsigned vectors, Environment& env) const;

 private:
  Emission& e_;
  const std::vector<std::uint16_t>& reductions_;
  std::vector<DType> types_;
};

}  // namespace fermata::jit

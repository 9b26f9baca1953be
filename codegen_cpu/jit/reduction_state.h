// The reduction states of one stage during code generation: all components, with one value per vector.
#pragma once

#include "codegen_cpu/jit/emission.h"

namespace fermata::jit {

class ReductionState {
 public:
  /// Of lanes of a block, which are narrower in some sums (narrow_sums.h), or of what is finished.
  enum class Of : bool { finished, block };
  ReductionState(Emission& e, const std::vector<std::uint16_t>& reductions, Of of = Of::finished);

  unsigned components() const { return static_cast<unsigned>(types_.size()); }
  /// The dtype of a component.
  DType type(unsigned component) const { return types_[component]; }
  /// Whether a component has another dtype once it is finished.
  bool is_narrow() const { return is_narrow_; }
  /// Lanes of a block in the dtypes that they have then.
  Values widened(Values lanes) const;
  /// `vectors` values of `lanes` lanes per component: all of component 0, then of component 1, ...
  Values identity(unsigned vectors, unsigned lanes) const;
  /// Combines values [first, last) of each component of `left` with those of `right`; other values of `left` are
  /// unchanged.
  Values combined(const Values& left, const Values& right, unsigned first, unsigned last) const;
  /// The lifted values of a group: `vectors` values per component, of which [first, last) are set.
  Values lifted(const Environment& env, unsigned vectors, unsigned first, unsigned last) const;
  /// Reduces lanes by halving to one scalar per component.
  Values merged(Values lanes) const;
  /// Makes the finished state available to Prim::reduced.
  void finish_uniform(const Values& state, Environment& env) const;
  void finish_vectors(const Values& state, unsigned vectors, Environment& env) const;

 private:
  Emission& e_;
  const std::vector<std::uint16_t>& reductions_;
  /// Whether the lanes of a reduction are narrower here.
  bool narrows(std::uint16_t reduction) const {
    return of_ == Of::block && e_.narrow_sums.source(reduction) != kNoValue;
  }
  const Of of_;
  std::vector<DType> types_;
  bool is_narrow_ = false;
};

}  // namespace fermata::jit

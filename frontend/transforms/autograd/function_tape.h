// One evaluation of a function on marked arguments and its tape, for pullbacks, pushforwards, and the captured tensors
// that its results depend on.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fermata/autograd.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "frontend/transforms/vmap/batched.h"

namespace fermata {

/// A new identity of x at the innermost level, and the node of the tape that stands for its gradient. It has x's
/// history where `records_outside`, so derivatives nest.
std::pair<Tensor, GradEdge> make_mark(const Tensor& x, bool records_outside, Location where);

/// Use: mark the arguments, run the function on the marks, finish() with its results.
class FunctionTape {
 public:
  explicit FunctionTape(Location where);
  ~FunctionTape();
  FunctionTape(const FunctionTape&) = delete;
  FunctionTape& operator=(const FunctionTape&) = delete;

  /// What the function gets for x. Only floating tensors have gradients; others are handed back.
  Tensor mark(const Tensor& x);
  /// Recording ends. `ys` are the results.
  void finish(std::span<const Tensor> ys);

  /// Can anything outside want the history of the results?
  bool needs_outer_gradient() const { return wanted_outside_; }
  /// Result i, with its history if that can be wanted.
  Tensor result(std::size_t i) const;
  std::size_t result_count() const { return results_.size(); }
  const Tensor& recorded_result(std::size_t i) const { return results_[i]; }
  /// Where the tape leaves the function: the histories of what it mentions without taking it as an argument.
  std::vector<GradEdge> outside() const;
  /// Gradients of the marks and then of `others`, from those of the results; undefined for none. The tape stays.
  std::vector<Tensor> pull(std::span<const Tensor> gradients, std::span<const GradEdge> others,
                           bool create_graph) const;
  const VmapLevel& level() const { return level_; }
  std::span<const GradEdge> marks() const { return marks_; }

 private:
  Location where_;
  bool records_outside_, wanted_outside_ = false;
  VmapLevel level_;
  std::uint64_t outer_scope_, scope_;
  std::optional<EnableGradGuard> recording_;
  std::vector<GradEdge> marks_;  // null for arguments without a gradient
  std::vector<Tensor> marked_;   // never handed out, so that the function cannot write them in place
  std::vector<Tensor> results_;
};

/// True while a Transposition is made. The gradients that are asked for are read by nobody; what matters is how they
/// depend on the seeds. So an operation that has a jvp and no vjp may hand out zeros with a derivative.
extern constinit thread_local bool in_transposition;
struct TranspositionScope {
  explicit TranspositionScope(bool on = true) : saved(std::exchange(in_transposition, on)) {}
  ~TranspositionScope() { in_transposition = saved; }
  TranspositionScope(const TranspositionScope&) = delete;
  TranspositionScope& operator=(const TranspositionScope&) = delete;
  bool saved;
};

/// The map that a tape pulls back, transposed again: pushforwards. v -> J^T v is linear in v, and the pullback of that
/// map is J, so every op's jvp follows from its vjp (docs/adr/013). The values of the map itself are computed by
/// nobody.
class Transposition {
 public:
  Transposition(const FunctionTape& tape, std::span<const GradEdge> others, Location where);
  /// How the results change with the marks and then `others`; undefined tangents are zero, and results for zero.
  std::vector<Tensor> push(std::span<const Tensor> tangents, bool create_graph) const;

 private:
  Location where_;
  VmapLevel level_;
  std::vector<GradEdge> seeds_;    // by result, null for those without a derivative
  std::vector<Tensor> gradients_;  // of the marks and the others, as a function of the seeds
};

}  // namespace fermata

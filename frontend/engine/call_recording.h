// One run of a function on stand-ins of its arguments: what compile(fn) keeps of a first call and compares a later one
// with.
//
// Stand-ins are other identities over the same buffers, to tell arguments from everything else. The recording itself is
// thrown away, and what the function writes in place, does to gradients and draws from the generator is undone: a
// replay does that. What a recording of control flow has, too, is in function_recording.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fermata/compile.h"
#include "frontend/engine/function_recording.h"

namespace fermata {

using detail::CompiledCore;

/// What becomes of a result, or of a gradient: an output of the program, or else a tensor from before.
struct ResultSource {
  std::int32_t output = -1;
  Place place{};
};
struct WriteBack {
  Place target;
  ResultSource value;
};
/// grad() of a leaf has another identity after the call, or none.
struct GradientChange {
  Place gradient;
  bool is_cleared = false;
  ResultSource value{};
};
/// A gradient that the function looks at: whether there is one decides what is recorded.
struct GradientCondition {
  Place gradient;
  bool is_defined;
  std::size_t shares_with;  // the first one that had the same value
};

class CallRecording : public FunctionRecording {
 public:
  /// Runs the function. Throws what that throws, having undone the same.
  CallRecording(std::span<const Tensor> arguments, CompiledCore::Body body, Location where);

  /// The function does what no replay can, and is to be run instead: its results can be differentiated, say.
  bool must_run() const { return must_run_; }

  std::vector<std::size_t> identities;  // per argument: the first one that is the same tensor
  std::vector<ResultSource> results;
  std::vector<std::uint64_t> result_numbers;  // what the result has beside tensors, and
  std::shared_ptr<const void> form;           // the rest of it
  std::vector<WriteBack> writes;
  std::vector<GradientChange> gradient_changes;
  std::vector<GradientCondition> gradient_conditions;
  std::vector<CaptureScope::SettingRead> settings;  // whose values decide what is recorded
  std::uint64_t draws = 0;                          // numbers taken from the generator
  DrawnRange drawn;                                 // where they were taken

 private:
  void make_placeholders(std::span<const Tensor> arguments);
  void run(CompiledCore::Body body, Location where);
  void find_changes();
  void find_roots(Location where);
  void find_sources();
  bool is_local(const CaptureScope::Gradient& gradient) const;
  bool is_reachable(const Tensor& hidden) const;
  Place place_of(const Node* leaf) const override;
  Place gradient_place(const CaptureScope::Gradient& gradient) const;
  ResultSource source_of(const Tensor& value) const;

  std::vector<Tensor> tensors_;  // stand-ins of the arguments, as the function gets them
  struct Written {
    Tensor target, value;
    std::int32_t placeholder = -1;
  };
  std::vector<Written> written_;
  std::vector<std::pair<CaptureScope::Gradient, Tensor>> gradients_;  // and what they are afterwards
  std::vector<const TensorImpl*> constants_;                          // identities that only the function knows
  bool must_run_ = false;
};

}  // namespace fermata

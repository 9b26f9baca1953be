// One run of a function on placeholders for its arguments: the capture of a first call by compile(fn), which later
// calls are compared with.
//
// Placeholders are aliases over the same buffers that distinguish arguments from captured tensors. The recorded nodes
// are discarded, and in-place writes, changes of gradients and draws of the function are undone; a replay performs
// them. function_recording.h has the part shared with control flow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fermata/compile.h"
#include "frontend/engine/function_recording.h"

namespace fermata {

using detail::CompiledCore;

/// The source of a value: an output of the program, or a tensor that existed before.
struct ResultSource {
  std::int32_t output = -1;
  Place place{};
};
/// What holds the elements of results: results that alias each other share one.
struct ResultCell {
  ResultSource source;
  bool is_place = false;      // the argument or captured tensor itself; else a tensor of its own with that value
  bool shares_value = false;  // with an earlier cell of the same output
};
/// A result: a cell, or a view of it.
struct Returned {
  std::size_t cell;
  ViewSteps view;
};
struct WriteBack {
  Place target;
  ResultSource value;
};
/// grad() of a leaf is replaced or cleared by the call.
struct GradientChange {
  Place gradient;
  bool is_cleared = false;
  ResultSource value{};
};
/// A gradient that the function reads; the recording depends on whether it is defined.
struct GradientCondition {
  Place gradient;
  bool is_defined;
  std::size_t shares_with;  // the first gradient with the same value
};

class CallRecording : public FunctionRecording {
 public:
  /// Runs the function. On an exception, undoes its effects and rethrows.
  CallRecording(std::span<const Tensor> arguments, CompiledCore::Body body, Location where);

  /// Whether the function must be run instead of replayed, for example because its results can be differentiated.
  bool must_run() const { return must_run_; }

  std::vector<std::size_t> identities;  // per argument: the first argument that is the same tensor
  std::vector<ResultCell> cells;
  std::vector<Returned> results;
  std::vector<std::uint64_t> result_numbers;  // the non-tensor values of the result,
  std::shared_ptr<const void> form;           // and its structure
  std::vector<WriteBack> writes;
  std::vector<GradientChange> gradient_changes;
  std::vector<GradientCondition> gradient_conditions;
  std::vector<CaptureScope::SettingRead> settings;  // whose values the recording depends on
  std::uint64_t draws = 0;                          // numbers taken from the generator
  DrawnRange drawn;                                 // where they were taken

 private:
  void make_placeholders(std::span<const Tensor> arguments);
  Tensor make_cell(TensorImpl* cell, Place place);
  void run(CompiledCore::Body body, Location where);
  void find_changes();
  void find_cells();
  void find_roots(Location where);
  void find_sources();
  bool is_local(const CaptureScope::Gradient& gradient) const;
  bool is_reachable(const Tensor& hidden) const;
  std::optional<Place> outside_place(TensorImpl* cell) const;
  bool aliases_another_result(std::size_t value) const;
  Place place_of(const Node* leaf) const override;
  Place gradient_place(const CaptureScope::Gradient& gradient) const;
  ResultSource source_of(const Tensor& value) const;

  std::vector<Tensor> tensors_;                              // placeholders passed to the function
  std::vector<std::pair<const TensorImpl*, Tensor>> bases_;  // cells of arguments, and their placeholders
  struct Written {
    Tensor target, value;
    std::int32_t placeholder = -1;
  };
  std::vector<Written> written_;
  std::vector<TensorImpl*> cells_;                                    // owned by the results
  std::vector<Tensor> cell_values_;                                   // before writes are undone
  std::vector<std::pair<CaptureScope::Gradient, Tensor>> gradients_;  // with their values afterwards
  std::vector<const TensorImpl*> constants_;                          // tensors that only the function references
  bool must_run_ = false;
};

}  // namespace fermata

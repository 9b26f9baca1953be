// The recorded run of a function, for compile(fn) and control flow: its environment, its effects and the resulting
// program (docs/adr/028-one-capture.md).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "frontend/engine/capture_scope.h"
#include "frontend/engine/generator_scope.h"
#include "frontend/engine/recorded_program.h"
#include "frontend/transforms/autocast/autocast.h"
#include "runtime/effects.h"
#include "runtime/walk.h"

namespace fermata {

/// The environment in which a function is recorded: it draws from the given generator, starts with an empty autocast
/// cache, and has its own effects. In-place writes and changes of gradients are undone at the end.
class RecordingGuards {
 public:
  RecordingGuards(CaptureScope& scope, const Generator& draws) : scope_(scope), generator_(draws) {}
  ~RecordingGuards() { scope_.undo_writes(), scope_.undo_gradients(), scope_.leave(); }
  RecordingGuards(const RecordingGuards&) = delete;
  RecordingGuards& operator=(const RecordingGuards&) = delete;

  /// The numbers drawn so far, and whether the generator was reseeded.
  std::uint64_t draws() const { return default_generator().offset() - generator_.outside().offset(); }
  bool is_seeded() const {
    return default_generator().key() != generator_.outside().key() ||
           default_generator().offset() < generator_.outside().offset();
  }

 private:
  CaptureScope& scope_;
  const GeneratorScope generator_;
  const FreshAutocastCache casts_;
  const EffectScope effects_;
};

/// Returns a handle to a value.
Tensor tensor_of(const Node* n);

class FunctionRecording {
 public:
  explicit FunctionRecording(CaptureScope::Of of) : scope_(of) {}
  virtual ~FunctionRecording() = default;
  FunctionRecording(const FunctionRecording&) = delete;
  FunctionRecording& operator=(const FunctionRecording&) = delete;

  /// Outputs of the program are in its order.
  const Walk& walk() const { return walk_; }
  Program program;

 protected:
  struct StandIn {
    Tensor tensor, before;  // before: its value when the function began
    std::uint64_t version;
    Place place;
  };
  void add_stand_in(const Tensor& tensor, Place place);
  /// Records the results of the function; must be called under the guards that it ran under.
  void take_results(std::vector<Tensor> given, std::string_view what, Location where);
  void add_root(Node* n);
  /// Walks the nodes under the roots and lists the program; `drawn` are numbers that every run draws anew.
  void list_program(const DrawnRange& drawn, const Walk::IsLeaf* is_leaf = nullptr);
  /// The origin of a leaf of the program.
  virtual Place place_of(const Node* leaf) const;
  std::int32_t output_of(const Node* n) const;

  CaptureScope scope_;
  std::vector<StandIn> stand_ins_;
  std::vector<Tensor> values_;  // results of the function
  Tensor last_effect_;          // of its calls; computed with its results
  std::vector<Node*> roots_;
  Walk walk_;
};

}  // namespace fermata

// One run of a function that is recorded, for compile(fn) and for control flow: under what it runs, what it has done,
// and the program that comes of it (docs/adr/028-one-capture.md).
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

/// What a function is recorded under, for whatever end. It draws from a generator that is given, starts with no casts,
/// and has effects of its own; what it writes in place and does to gradients is undone at the end.
class RecordingGuards {
 public:
  RecordingGuards(CaptureScope& scope, const Generator& draws) : scope_(scope), generator_(draws) {}
  ~RecordingGuards() { scope_.undo_writes(), scope_.undo_gradients(), scope_.leave(); }
  RecordingGuards(const RecordingGuards&) = delete;
  RecordingGuards& operator=(const RecordingGuards&) = delete;

  /// Since the beginning: numbers drawn, and whether the generator has begun again.
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

/// A handle of a value.
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
    Tensor tensor;
    const Node* node;  // before the function ran
    std::uint64_t version;
    std::int32_t argument;
    bool is_gradient;
  };
  void add_stand_in(const Tensor& tensor, std::size_t argument, bool is_gradient = false);
  /// What the function has given; to be called under the guards that it ran under.
  void take_results(std::vector<Tensor> given, std::string_view what, Location where);
  void add_root(Node* n);
  /// Walks what the roots need, and lists it; `drawn` are numbers that a run draws again.
  void list_program(const DrawnRange& drawn, const Walk::IsLeaf* is_leaf = nullptr);
  /// Where a leaf of the program comes from.
  virtual Place place_of(const Node* leaf) const;
  std::int32_t output_of(const Node* n) const;

  CaptureScope scope_;
  std::vector<StandIn> stand_ins_;
  std::vector<Tensor> values_;  // results of the function
  Tensor last_effect_;          // of the calls that it has made: computed with its results
  std::vector<Node*> roots_;
  Walk walk_;
};

}  // namespace fermata

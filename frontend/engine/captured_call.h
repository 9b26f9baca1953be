// A captured call of a compiled function: its program, its signature, and the targets of results and writes.
//
// Immutable except for what the containing list keeps of its users.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dispatch/operator.h"
#include "fermata/compile.h"
#include "frontend/distributed/captured_blocks.h"
#include "frontend/engine/call_recording.h"
#include "frontend/engine/captured_program.h"
#include "frontend/transforms/autocast/autocast.h"
#include "ir/key_set.h"

namespace fermata {

/// The part of a call's signature besides its arguments.
struct CaptureContext {
  ThreadKeys keys;
  std::uint64_t autocast = 0;
  std::uint64_t table_generation = 0;  // version of the kernel table
  static CaptureContext current() {
    // The Autocast key comes only from the thread, and its settings are in the signature.
    const ThreadKeys& thread = thread_keys;
    const DispatchKeySet active = thread.included - thread.excluded;
    return {{active, thread.excluded - Functionality::autocast},
            active.has(Functionality::autocast) ? autocast_signature() : 0,
            fermata::table_generation.load(std::memory_order_acquire)};
  }
  bool operator==(const CaptureContext& o) const {
    return keys.included == o.keys.included && keys.excluded == o.keys.excluded && autocast == o.autocast &&
           table_generation == o.table_generation;
  }
};

/// The working state of one replay; empty between replays except for the plan.
struct Replayer : CapturedProgram::Runner {
  using Runner::Runner;
  std::vector<Tensor> outputs, cells, results, held;  // held: gradients that the run reads
  /// A value that the run writes over: its tensor is written in place, and nothing else needs it.
  struct Overwritten {
    std::size_t output;
    Node* leaf;
    Storage* storage;
  };
  std::vector<Overwritten> overwritten;
};

class CapturedCall {
 public:
  CapturedCall(std::span<const Tensor> arguments, std::span<const std::uint64_t> numbers, CallRecording& recording,
               const CaptureContext& context, Location where);
  /// Of a function that cannot be recorded.
  CapturedCall(std::span<const Tensor> arguments, std::span<const std::uint64_t> numbers,
               const CaptureContext& context);

  /// Whether a call has the signature of this one. Neither allocates nor computes.
  bool matches(std::span<const Tensor> arguments, std::span<const std::uint64_t> numbers,
               const CaptureContext& context) const {
    if (arguments_.size() != arguments.size() || !std::ranges::equal(numbers, numbers_) || !(context_ == context))
      return false;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      if (!arguments_[i].matches(*arguments[i].node()) || wants_grad_[i] != wants_grad(arguments[i]) ||
          identities_[i] != first_of_identity(arguments, i) || is_view_[i] != (arguments[i].impl()->view != nullptr))
        return false;
    return bases_.empty() || bases_match(arguments);
  }
  /// Whether captured tensors have the same layouts, and the same gradients are defined.
  bool conditions_hold(std::span<const Tensor> arguments) const {
    return !has_conditions_ || all_conditions_hold(arguments);
  }
  /// Whether both were captured with the same kernel table.
  bool is_of_table_like(const CapturedCall& o) const {
    return context_.table_generation == o.context_.table_generation;
  }
  /// Whether the function must be run instead.
  bool must_run() const { return must_run_; }
  std::unique_ptr<Replayer> make_replayer() const { return std::make_unique<Replayer>(captured_); }
  void replay(Replayer& replayer, std::span<const Tensor> arguments, CompiledCore::Deliver deliver,
              Location where) const;
  /// Throws UserError FM1702, naming the first difference, if another recording of the call differs.
  void require_same(const CallRecording& again, Location where) const;

  /// The part of a lane (see compile.cpp), under the lock of that.
  struct alignas(64) LaneUse {
    std::uint64_t used = 0;
    std::uint32_t users = 0;
    IdleRunners<Replayer, 4> idle;
  };
  static constexpr std::size_t kLanes = 16;
  std::array<LaneUse, kLanes> lanes;
  bool has_users() const {
    return std::ranges::any_of(lanes, [](const LaneUse& use) { return use.users != 0; });
  }
  std::uint64_t last_used() const { return std::ranges::max_element(lanes, {}, &LaneUse::used)->used; }
  // Owned by the containing list; written under the locks of all lanes.
  std::uint64_t number = 0;
  bool is_forgotten = false;
  bool is_checked = false;  // recorded a second time and found to be equal

 private:
  static bool wants_grad(const Tensor& t) {
    return (t.impl()->slot != nullptr || t.impl()->view != nullptr) && t.requires_grad();
  }
  static std::size_t first_of_identity(std::span<const Tensor> arguments, std::size_t i) {
    std::size_t first = 0;
    while (arguments[first].impl() != arguments[i].impl()) ++first;
    return first;
  }
  bool bases_match(std::span<const Tensor> arguments) const;
  bool all_conditions_hold(std::span<const Tensor> arguments) const;
  bool changes_an_argument(std::span<const Tensor> arguments) const;
  void take_arguments(std::span<const Tensor> arguments);
  void run(Replayer& r, std::span<const Tensor> arguments, Location where) const;
  void find_in_place();
  void lose_overwritten(Replayer& r, std::span<const Tensor> arguments, Location where) const;
  void choose_overwritten(Replayer& r, std::span<const Tensor> arguments) const;
  const Tensor& tensor_at(const Place& place, Replayer& r, std::span<const Tensor> arguments, Tensor& none,
                          Location where) const;
  void write_back(const Replayer& r, std::span<const Tensor> arguments, Location where) const;
  void give_results(Replayer& r, Location where) const;
  Tensor cell_of_results(const ResultCell& cell, const Replayer& r, std::span<const Tensor> arguments) const;
  Tensor value_of(const ResultSource& source, const Replayer& r, std::span<const Tensor> arguments) const;

  std::vector<Layout> arguments_;
  std::vector<bool> wants_grad_, is_view_;
  /// What arguments are views of: the first argument that has its elements there, and its sizes. Empty if there are no
  /// views.
  struct Base {
    std::size_t first;
    Shape sizes;
  };
  std::vector<Base> bases_;
  std::vector<std::size_t> identities_;
  std::vector<std::uint64_t> numbers_;
  CaptureContext context_;
  bool must_run_ = false, changes_an_argument_ = false, has_conditions_ = false;
  bool gives_outputs_ = false;  // results are exactly the outputs of the plan, each once

  CapturedProgram captured_;
  std::unique_ptr<const ProgramOfRanks> of_ranks_;  // instead of a plan, where ranks make another program of it
  std::vector<ResultCell> cells_;
  std::vector<Returned> results_;
  std::vector<std::uint64_t> result_numbers_;
  std::shared_ptr<const void> form_;
  std::vector<WriteBack> writes_;
  /// Leaves of the plan, and the outputs that are written into them: a run may write over them.
  struct InPlace {
    std::size_t leaf, output;
  };
  std::vector<InPlace> in_place_;
  std::vector<GradientChange> gradient_changes_;
  std::vector<GradientCondition> gradient_conditions_;
  std::vector<CaptureScope::SettingRead> settings_;
  std::vector<std::pair<Place, Layout>> layouts_;  // of leaves that are not arguments
  std::uint64_t draws_ = 0;
};

}  // namespace fermata

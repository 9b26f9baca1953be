// See captured_function.h.
#include "frontend/engine/captured_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "dispatch/copy_view.h"
#include "fermata/autograd.h"
#include "fermata/modes.h"
#include "fermata/ops.h"
#include "frontend/distributed/partitioned_sync.h"
#include "frontend/engine/function_recording.h"
#include "frontend/engine/graph_runner.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/error.h"
#include "ir/ops/control.h"
#include "passes/bucket_collectives.h"
#include "passes/pipeline.h"
#include "runtime/backend_memory.h"

namespace fermata {
namespace {

/// A value of that type that is pending for ever, so that reading it is an error.
Tensor placeholder(const TensorType& type, BackendKey backend, const CaptureScope& scope) {
  Node* node = make_leaf(type, Storage::nowhere(), backend, Node::kTensor);
  node->storage.exchange(nullptr)->release();
  Tensor stand_in(node, DispatchKeySet(backend) | Functionality::dense);
  scope.mark(node);
  return stand_in;
}

[[noreturn]] void throw_writes(std::string_view what, const Tensor& target, Location where) {
  throw UnsupportedError(2760, format_error(2760, "UnsupportedError",
                                            fmt::format("{}: a function writes a captured tensor in place", what),
                                            {{"x", to_string(target.dtype(), target.shape()), ""}}, where,
                                            "make it an argument and a result of the function"));
}

}  // namespace

/// Every result is an output of the program, and one of its own.
class CapturedFunction::Recording : public FunctionRecording {
 public:
  Recording(const TensorFunction& f, std::span<const TensorType> arguments, BackendKey backend, std::string_view what,
            Location where)
      : FunctionRecording(CaptureScope::Of::control_flow) {
    std::vector<Tensor> placeholders;
    for (const TensorType& type : arguments) {
      placeholders.push_back(placeholder(type, backend, scope_));
      add_stand_in(placeholders.back(), {.argument = static_cast<std::int32_t>(placeholders.size() - 1)});
    }
    {
      const KeyGuard plain({}, Functionality::autograd);
      const RecordingGuards guards(scope_, Generator(ops::kStreamKey));
      take_results(f(placeholders), what, where);
      require_no_writes(what, where);
      for (Tensor& t : values_) {
        const Node* n = t.node();
        const bool computed_here = n->pending() && scope_.made(n) && n->op != Op::input;
        if (!computed_here || std::ranges::find(roots_, n) != roots_.end()) t = copy(t, where);
        add_root(t.node());
      }
    }
    if (has_effects()) add_root(last_effect_.node());
    const auto is_leaf = [&](const Node* n) { return n->op == Op::input || !scope_.made(n); };
    const Walk::IsLeaf leaves(is_leaf);
    list_program({.key = ops::kStreamKey, .first = 0, .count = ~std::uint64_t{0}}, &leaves);
  }

  /// All ranks run a function as a whole, so its collectives may be joined: then that is recorded.
  static std::unique_ptr<Recording> with_buckets(const TensorFunction& f, std::span<const TensorType> arguments,
                                                 BackendKey backend, std::string_view what, Location where,
                                                 Collectives collectives) {
    auto recording = std::make_unique<Recording>(f, arguments, backend, what, where);
    if (!recording->has_effects() || collectives == Collectives::joined || is_pass_disabled("bucket_collectives"))
      return recording;
    Graph graph = import_graph(recording->walk());
    if (bucket_collectives(graph).buckets.empty()) return recording;
    const auto joined = [&](std::span<const Tensor> given) {
      std::vector<Tensor> inputs, results;
      for (const Place& place : recording->program.leaves) {
        if (place.is_constant) capture_scope->mark(place.hidden.node());  // this one has created it as well
        inputs.push_back(place.is_of_argument() ? given[static_cast<std::size_t>(place.argument)] : place.hidden);
      }
      const std::vector<Tensor> outputs = run_graph(graph, inputs, where);
      for (const std::size_t output : recording->outputs()) results.push_back(outputs[output]);
      return results;
    };
    const PlainThread plain;
    const NoGradGuard no_grad;
    const ModeGuard recorded(Mode::compiled);
    return std::make_unique<Recording>(joined, arguments, backend, what, where);
  }

  bool has_effects() const { return last_effect_.defined(); }
  std::vector<TensorType> result_types() const {
    std::vector<TensorType> types;
    for (const Tensor& t : values_) types.push_back(type_of(t));
    return types;
  }
  /// Of the program, by result.
  std::vector<std::size_t> outputs() const {
    std::vector<std::size_t> outputs;
    for (const Tensor& t : values_) outputs.push_back(static_cast<std::size_t>(output_of(t.node())));
    return outputs;
  }

 private:
  void require_no_writes(std::string_view what, Location where) const {
    if (!scope_.writes().empty()) throw_writes(what, scope_.writes()[0].target, where);
    for (const CaptureScope::Gradient& g : scope_.gradients())
      if (g.leaf->grad.impl() != g.before.impl())
        throw_writes(what, g.leaf->grad.defined() ? g.leaf->grad : g.before, where);
  }
};

CapturedFunction::CapturedFunction(const TensorFunction& f, std::span<const TensorType> arguments, BackendKey backend,
                                   std::string_view what, Location where, Collectives collectives)
    : CapturedFunction(std::move(*Recording::with_buckets(f, arguments, backend, what, where, collectives)), arguments,
                       where) {}

CapturedFunction::CapturedFunction(Recording&& recording, std::span<const TensorType> arguments, Location where)
    : where_(where),
      has_effects_(recording.has_effects()),
      reads_(arguments.size()),
      captured_(std::move(recording.program)),
      outputs_(recording.outputs()) {
  arguments_.assign(arguments.begin(), arguments.end()), results_ = recording.result_types();
  captured_.compile(recording.walk());
  take_captures(arguments.size());
}

/// Leaves that the plan reads and that are not arguments become arguments; the other leaves are unused.
void CapturedFunction::take_captures(std::size_t arguments) {
  std::vector<bool> is_read(captured_.program().leaves.size());
  for (const std::uint32_t leaf : captured_.leaves()) {
    Place& place = captured_.place(leaf);
    is_read[leaf] = true;
    if (place.is_of_argument()) {
      reads_[static_cast<std::size_t>(place.argument)] = true;
      continue;
    }
    // The outer capture has created its constants as well.
    if (place.is_constant && in_capture_scope()) capture_scope->mark(place.hidden.node());
    captures_.push_back(std::move(place.hidden));
    place = {.argument = static_cast<std::int32_t>(arguments + captures_.size() - 1)};
  }
  for (std::uint32_t leaf = 0; leaf < is_read.size(); ++leaf)
    if (!is_read[leaf]) captured_.place(leaf) = {};
}

void CapturedFunction::arrange(std::span<const std::size_t> places, std::span<const TensorType> arguments) {
  for (const std::uint32_t leaf : captured_.leaves()) {
    Place& place = captured_.place(leaf);
    place.argument = static_cast<std::int32_t>(places[static_cast<std::size_t>(place.argument)]);
  }
  arguments_.assign(arguments.begin(), arguments.end());
  captures_.clear();
}

Graph CapturedFunction::graph() const {
  std::vector<std::uint32_t> results;
  for (const std::size_t output : outputs_) results.push_back(captured_.output_nodes()[output]);
  return graph_of(captured_.program(), arguments_, results, ops::kStreamKey);
}

LeafBuffer CapturedFunction::buffer_of(std::size_t i, std::span<const TensorView> arguments,
                                       std::vector<StoragePtr>& copies) const {
  const Place& place = captured_.program().leaves[captured_.leaves()[i]];
  const TensorView& v = arguments[static_cast<std::size_t>(place.argument)];
  const Layout& layout = captured_.leaf_node(i).type;
  const std::span<const std::int64_t> sizes(v.sizes, v.rank), strides(v.strides, v.rank);
  if (layout.strides.rank() != 0 || layout.offset != 0) {
    if (!std::ranges::equal(layout.strides, strides))
      throw_internal("a captured function meets another layout", where_);
    return {static_cast<std::byte*>(v.data) - layout.offset * static_cast<std::int64_t>(byte_size(v.dtype)), v.buffer};
  }
  if (is_dense(sizes, strides)) return {v.data, v.buffer};
  copies.emplace_back(allocate_on(backend(), static_cast<std::size_t>(v.element_count()) * byte_size(v.dtype)));
  copy_view(v, copies.back()->data, backend(), where_);
  return {copies.back()->data};
}

/// What one run works with.
struct CapturedFunction::Lease {
  explicit Lease(const CapturedFunction& f) : function(f) {
    {
      const std::lock_guard held(f.lock_);
      runner = f.idle_.take();
    }
    if (runner == nullptr) runner = std::make_unique<CapturedProgram::Runner>(f.captured_);
  }
  ~Lease() {
    runner->clear();
    const std::lock_guard held(function.lock_);
    function.idle_.give_back(runner);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  const CapturedFunction& function;
  std::unique_ptr<CapturedProgram::Runner> runner;
};

void CapturedFunction::run(std::span<const TensorView> arguments, std::span<void* const> results, std::uint64_t key,
                           std::uint64_t first) const {
  const Lease lease(*this);
  CapturedProgram::Runner& r = *lease.runner;
  for (std::size_t i = 0; i < captured_.leaves().size(); ++i) r.leaves.push_back(buffer_of(i, arguments, r.staged));
  for (std::size_t i = 0; i < results.size(); ++i) r.buffers[outputs_[i]] = results[i];
  captured_.set_draws(r, key, first);
  captured_.run(r);
}

/// Leaves that do not lie as the program expects are copied before the first step.
bool CapturedFunction::run_scan(const ops::ScanLoop& scan, std::span<const TensorView> arguments,
                                std::span<void* const> results) const {
  constexpr std::int64_t kFewSteps = 4;
  const auto carries = static_cast<std::size_t>(scan.carries.value),
             stacked = carries + static_cast<std::size_t>(scan.sequences.value);
  const std::int64_t steps = scan.length.value, direction = scan.reverse.value ? -1 : 1;
  if (steps < kFewSteps || !captured_.may_repeat()) return false;
  std::vector<std::pair<TensorView, void*>> copies;
  std::vector<StoragePtr> copied;
  for (std::size_t i = 0; i < carries; ++i) copies.emplace_back(arguments[i], results[i]);
  const auto copy_all = [&] {
    for (const auto& [from, to] : copies) copy_view(from, to, backend(), where_);
  };
  const auto at_first = [&](void* data, std::int64_t bytes) -> void* {
    return static_cast<std::byte*>(data) + (scan.reverse.value ? (steps - 1) * bytes : 0);
  };
  Repetition all{.steps = steps, .leaves = {}, .outputs = {}, .begin = copy_all};
  all.outputs.resize(captured_.output_types().size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const TensorType& type = captured_.output_types()[outputs_[i]];
    const auto bytes = element_count(type.shape) * static_cast<std::int64_t>(byte_size(type.dtype));
    all.outputs[outputs_[i]] = i < carries ? Repetition::Output{.data = results[i], .is_carried = true}
                                           : Repetition::Output{at_first(results[i], bytes), direction * bytes};
  }
  for (std::size_t i = 0; i < captured_.leaves().size(); ++i) {
    const auto argument = static_cast<std::size_t>(captured_.program().leaves[captured_.leaves()[i]].argument);
    const Layout& layout = captured_.leaf_node(i).type;
    if (layout.strides.rank() != 0 || layout.offset != 0) return false;
    if (argument < carries) {
      all.outputs[outputs_[argument]].leaf = i;
      all.leaves.push_back({results[argument]});
      continue;
    }
    const TensorView& v = arguments[argument];
    const std::size_t steps_axis = argument < stacked ? 1 : 0;
    const std::span<const std::int64_t> sizes(v.sizes, v.rank), strides(v.strides, v.rank);
    const auto element = static_cast<std::int64_t>(byte_size(v.dtype));
    void* data = v.data;
    std::int64_t bytes = steps_axis != 0 ? strides[0] * element : 0;
    if (!is_dense(sizes.subspan(steps_axis), strides.subspan(steps_axis))) {
      copied.emplace_back(allocate_on(backend(), static_cast<std::size_t>(v.element_count() * element)));
      data = copied.back()->data;
      copies.emplace_back(v, data);
      bytes = steps_axis != 0 ? v.element_count() / steps * element : 0;
    }
    all.leaves.push_back({at_first(data, bytes), direction * bytes});
  }
  const Lease lease(*this);
  return captured_.run_repeated(*lease.runner, all);
}

}  // namespace fermata

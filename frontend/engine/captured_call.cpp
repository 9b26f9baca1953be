// See captured_call.h.
#include "frontend/engine/captured_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "dispatch/devices.h"
#include "fermata/autograd.h"
#include "fermata/modes.h"
#include "fermata/ops.h"
#include "fermata/random.h"
#include "frontend/engine/alias.h"
#include "frontend/engine/compile_policy.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/error.h"
#include "runtime/effects.h"
#include "runtime/events.h"

namespace fermata {
namespace {

/// The first argument that has its elements in the same cell.
std::size_t first_of_cell(std::span<const Tensor> arguments, std::size_t i) {
  std::size_t first = 0;
  while (cell_of(arguments[first]) != cell_of(arguments[i])) ++first;
  return first;
}

/// Whether both are the same tensor itself, not its base or a gradient.
bool is_same_tensor(const Place& a, const Place& b) {
  if (a.is_indirect() || b.is_indirect() || a.is_of_argument() != b.is_of_argument()) return false;
  return a.is_of_argument() ? a.argument == b.argument : a.hidden.impl() == b.hidden.impl();
}

/// Draws the random numbers of a replay, and restores the generator if it fails.
class ReplayDraws {
 public:
  explicit ReplayDraws(std::uint64_t count)
      : generator_(default_generator()),
        before_(generator_.offset()),
        first_(generator_.reserve(static_cast<std::int64_t>(count))) {}
  ~ReplayDraws() {
    if (!done_) generator_.set_offset(before_);
  }
  ReplayDraws(const ReplayDraws&) = delete;
  ReplayDraws& operator=(const ReplayDraws&) = delete;
  std::uint64_t first() const { return first_; }
  std::uint64_t key() const { return generator_.key(); }
  void keep() { done_ = true; }

 private:
  Generator& generator_;
  std::uint64_t before_, first_;
  bool done_ = false;
};

}  // namespace

CapturedCall::CapturedCall(std::span<const Tensor> arguments, std::span<const std::uint64_t> numbers,
                           CallRecording& recording, const CaptureContext& context, Location where)
    : identities_(recording.identities),
      numbers_(numbers.begin(), numbers.end()),
      context_(context),
      must_run_(recording.must_run()),
      captured_(std::move(recording.program)),
      cells_(std::move(recording.cells)),
      results_(std::move(recording.results)),
      result_numbers_(std::move(recording.result_numbers)),
      form_(std::move(recording.form)),
      writes_(std::move(recording.writes)),
      gradient_changes_(std::move(recording.gradient_changes)),
      gradient_conditions_(std::move(recording.gradient_conditions)),
      settings_(std::move(recording.settings)),
      draws_(recording.draws) {
  take_arguments(arguments);
  if (must_run_) return;
  changes_an_argument_ = changes_an_argument(arguments);
  // An argument that is also written as a captured tensor has two placeholders: only the function itself gets it
  // right.
  must_run_ = changes_an_argument_, has_conditions_ = must_run_ || !settings_.empty();
  if (must_run_) return;
  const auto note_layout = [&](const ProgramNode& leaf) {
    const Place& place = captured_.program().leaves[static_cast<std::size_t>(leaf.leaf)];
    if (!place.is_of_argument() || place.is_indirect()) layouts_.emplace_back(place, leaf.type);
  };
  if (!captured_.program().nodes.empty()) of_ranks_ = ProgramOfRanks::of(recording.walk(), recording.drawn, where);
  if (of_ranks_ != nullptr) {
    for (const ProgramNode& n : captured_.program().nodes)
      if (n.leaf >= 0) note_layout(n);
  } else {
    captured_.compile(recording.walk());
    for (std::size_t i = 0; i < captured_.leaves().size(); ++i) note_layout(captured_.leaf_node(i));
  }
  has_conditions_ = !settings_.empty() || !layouts_.empty() || !writes_.empty() || !gradient_conditions_.empty();
  const std::size_t outputs = of_ranks_ != nullptr ? of_ranks_->outputs() : captured_.output_types().size();
  find_in_place();
  gives_outputs_ = writes_.empty() && gradient_changes_.empty() && results_.size() == outputs;
  gives_outputs_ = gives_outputs_ && cells_.size() == outputs;
  for (std::size_t i = 0; gives_outputs_ && i < outputs; ++i)
    gives_outputs_ =
        results_[i].cell == i && results_[i].view.empty() && cells_[i].source.output == static_cast<std::int32_t>(i);
}

CapturedCall::CapturedCall(std::span<const Tensor> arguments, std::span<const std::uint64_t> numbers,
                           const CaptureContext& context)
    : numbers_(numbers.begin(), numbers.end()), context_(context), must_run_(true), captured_(Program()) {
  take_arguments(arguments);
  for (std::size_t i = 0; i < arguments.size(); ++i) identities_.push_back(first_of_identity(arguments, i));
}

void CapturedCall::take_arguments(std::span<const Tensor> arguments) {
  for (const Tensor& t : arguments) {
    arguments_.push_back(Layout::of(*t.node())), wants_grad_.push_back(wants_grad(t));
    is_view_.push_back(t.impl()->view != nullptr);
  }
  if (std::ranges::find(is_view_, true) == is_view_.end()) return;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    bases_.push_back({first_of_cell(arguments, i), Shape(cell_of(arguments[i])->value->sizes())});
}

bool CapturedCall::bases_match(std::span<const Tensor> arguments) const {
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (bases_[i].first != first_of_cell(arguments, i) ||
        !std::ranges::equal(bases_[i].sizes, cell_of(arguments[i])->value->sizes()))
      return false;
  return true;
}

/// Whether an argument is also a captured tensor, and the function changes it through either.
bool CapturedCall::changes_an_argument(std::span<const Tensor> arguments) const {
  if (writes_.empty() && gradient_conditions_.empty()) return false;
  const auto is = [](const Place& p, const Tensor& t) {
    if (p.is_of_argument()) return false;
    if (p.leaf == nullptr) return cell_of(p.hidden) == cell_of(t);
    return t.impl()->slot != nullptr && t.impl()->view == nullptr && grad_state(t.impl())->leaf == p.leaf;
  };
  const bool writes_arguments =
      std::ranges::any_of(writes_, [](const WriteBack& w) { return w.target.is_of_argument(); });
  for (const Tensor& t : arguments) {
    if (std::ranges::any_of(writes_, [&](const WriteBack& w) { return is(w.target, t); })) return true;
    if (std::ranges::any_of(gradient_conditions_, [&](const GradientCondition& c) { return is(c.gradient, t); }))
      return true;
    if (writes_arguments && std::ranges::any_of(captured_.program().leaves, [&](const Place& p) { return is(p, t); }))
      return true;
  }
  return false;
}

bool CapturedCall::all_conditions_hold(std::span<const Tensor> arguments) const {
  if (!std::ranges::all_of(settings_, &CaptureScope::SettingRead::holds)) return false;
  Tensor held;
  for (const auto& [place, layout] : layouts_) {
    const Tensor& t = place.find(arguments, held);
    if (!t.defined()) return false;
    // The sharding of a pending value is not known in advance.
    if (of_ranks_ != nullptr && t.node()->pending())
      tensor_hooks.materialize(t.node(), "a compiled function uses a pending tensor", {});
    if (!t.node()->pending() && !layout.matches(*t.node())) return false;
  }
  if (changes_an_argument(arguments) != changes_an_argument_) return false;
  if (gradient_conditions_.empty()) return true;
  std::vector<const Node*> values;
  for (const GradientCondition& c : gradient_conditions_) {
    const Tensor& gradient = c.gradient.find(arguments, held);
    if (gradient.defined() != c.is_defined) return false;
    values.push_back(gradient.defined() ? gradient.node() : nullptr);
    if (static_cast<std::size_t>(std::ranges::find(values, values.back()) - values.begin()) != c.shares_with)
      return false;
  }
  return true;
}

/// The computed value of a place.
const Tensor& CapturedCall::tensor_at(const Place& place, Replayer& r, std::span<const Tensor> arguments, Tensor& none,
                                      Location where) const {
  if (place.is_indirect()) [[unlikely]]
    r.held.emplace_back();
  const Tensor& t = place.find(arguments, r.held.empty() ? none : r.held.back());
  if (t.node()->pending()) tensor_hooks.materialize(t.node(), "a compiled function uses a pending tensor", where);
  return t;
}

/// Written tensors whose value before is not a result, or written elsewhere.
void CapturedCall::find_in_place() {
  if (!captured_.has_plan() || captured_.has_boxed_calls()) return;
  for (const WriteBack& w : writes_) {
    const auto is_needed = [&](const ResultSource& s) { return s.output < 0 && is_same_tensor(s.place, w.target); };
    if (w.value.output < 0 || std::ranges::any_of(cells_, is_needed, &ResultCell::source) ||
        std::ranges::any_of(writes_, is_needed, &WriteBack::value) ||
        std::ranges::any_of(gradient_changes_, is_needed, &GradientChange::value))
      continue;
    const auto is_written = [&](const Overwrite& o) {
      return static_cast<std::int32_t>(o.output) == w.value.output &&
             is_same_tensor(captured_.program().leaves[captured_.leaves()[o.leaf]], w.target);
    };
    const auto allowed = std::ranges::find_if(captured_.overwrites(), is_written);
    if (allowed != captured_.overwrites().end()) in_place_.push_back({allowed->leaf, allowed->output});
  }
}

/// Nobody else reads such a value while this runs: there are no edges to it, so no other thread has recorded a call of
/// it that has not run, and a tensor that is written in place must not be used elsewhere meanwhile.
void CapturedCall::choose_overwritten(Replayer& r, std::span<const Tensor> arguments) const {
  if (in_place_.empty() || always_runs_calls.load(std::memory_order_relaxed)) return;
  for (const InPlace& written : in_place_) {
    if (r.buffers[written.output] != nullptr) continue;
    Tensor none;
    const Tensor& t = captured_.program().leaves[captured_.leaves()[written.leaf]].find(arguments, none);
    Node& leaf = *t.node();
    Storage* const storage = leaf.storage.load(std::memory_order_acquire);
    if (t.impl()->pinned != nullptr || leaf.refs.load(std::memory_order_acquire) != Node::kTensor ||
        !leaf.is_dense_leaf() || !storage->unique() || !storage->is_own() || storage->data == nullptr)
      continue;
    storage->forget_packed();
    r.buffers[written.output] = storage->data;
    r.leaves[written.leaf].buffer = nullptr;  // nothing else lies there
    r.overwritten.push_back({written.output, &leaf, storage});
  }
}

/// After a run that failed in the middle of writing: whoever reads such a tensor is told so (FM3003).
void CapturedCall::lose_overwritten(Replayer& r, std::span<const Tensor> arguments, Location where) const {
  const ModeGuard recorded(Mode::compiled);
  for (const Replayer::Overwritten& o : r.overwritten)
    for (const WriteBack& w : writes_) {
      Tensor none;
      const Tensor& target = w.target.find(arguments, none);
      if (w.target.is_indirect() || target.node() != o.leaf) continue;
      const Tensor lost = with_history(copy(target.detach(), where), {});
      o.leaf->storage.exchange(Storage::overwritten())->release();
      lost.node()->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
      target.set_node(lost.node());
    }
}

void CapturedCall::run(Replayer& r, std::span<const Tensor> arguments, Location where) const {
  const BackendKey backend = captured_.backend();
  for (const std::uint32_t leaf : captured_.leaves()) {
    Tensor none;
    const Tensor& t = tensor_at(captured_.program().leaves[leaf], r, arguments, none, where);
    r.leaves.push_back(leaf_buffer(*t.node(), *t.node()->storage.load(std::memory_order_acquire), backend, r.staged));
  }
  if (captured_.has_effects()) [[unlikely]]  // after the pending effects of the thread
    run_effects(where);
  choose_overwritten(r, arguments);
  try {
    captured_.run(r, r.overwritten.empty() ? CapturedProgram::Steps::either : CapturedProgram::Steps::kernels);
  } catch (...) {
    if (r.bound.has_overwritten()) lose_overwritten(r, arguments, where);
    throw;
  }
  for (const Replayer::Overwritten& o : r.overwritten) o.storage->retain(), r.storage[o.output].reset(o.storage);
  for (std::size_t i = 0; i < r.storage.size(); ++i)
    r.outputs.push_back(Tensor(make_leaf(captured_.output_types()[i], r.storage[i].release(), backend, Node::kTensor),
                               DispatchKeySet(backend) | Functionality::dense));
}

Tensor CapturedCall::value_of(const ResultSource& source, const Replayer& r, std::span<const Tensor> arguments) const {
  if (source.output >= 0) return r.outputs[static_cast<std::size_t>(source.output)];
  Tensor held;
  return source.place.find(arguments, held);
}

Tensor CapturedCall::cell_of_results(const ResultCell& cell, const Replayer& r,
                                     std::span<const Tensor> arguments) const {
  Tensor value = value_of(cell.source, r, arguments);
  const bool is_its_own = cell.is_place || (cell.source.output >= 0 && !cell.shares_value);
  return is_its_own ? value : with_history(value, {});
}

/// After what the function writes: views are of that.
void CapturedCall::give_results(Replayer& r, Location where) const {
  const ModeGuard now(Mode::eager);
  for (const Returned& result : results_) {
    Tensor t = r.cells[result.cell];
    for (const ViewStep& step : result.view) t = make_view(step.op, t, step.attributes, step.sizes, where);
    r.results.push_back(std::move(t));
  }
}

void CapturedCall::write_back(const Replayer& r, std::span<const Tensor> arguments, Location where) const {
  std::vector<Tensor> values;  // all are read before the first one is replaced
  for (const WriteBack& w : writes_)
    values.push_back(w.value.output >= 0 ? value_of(w.value, r, arguments)
                                         : with_history(value_of(w.value, r, arguments), {}));
  for (std::size_t i = 0; i < writes_.size(); ++i) {
    Tensor held;
    const Tensor& target = writes_[i].target.find(arguments, held);
    if (target.impl()->pinned == nullptr) {
      Node* const value = values[i].node();
      value->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
      target.set_node(value);
      continue;
    }
    const NoGradGuard no_grad;  // its address was returned to the caller: elements are copied there
    write(target, values[i], where);
  }
  std::vector<Tensor> gradients;  // likewise
  for (const GradientChange& g : gradient_changes_)
    gradients.push_back(g.is_cleared ? Tensor() : with_history(value_of(g.value, r, arguments), {}));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    LeafGradient& leaf = *leaf_of(gradient_changes_[i].gradient, arguments);
    const std::lock_guard lock(leaf.mutex);
    std::swap(leaf.grad, gradients[i]);
  }
}

void CapturedCall::replay(Replayer& r, std::span<const Tensor> arguments, CompiledCore::Deliver deliver,
                          Location where) const {
  struct Clear {
    Replayer& r;
    ~Clear() {
      r.clear(), r.outputs.clear(), r.cells.clear(), r.results.clear(), r.held.clear(), r.overwritten.clear();
    }
  } const clear{r};
  EventScope event([&] { return event_info(EventKind::replay, "compiled function", where); });
  if (event.is_wanted()) [[unlikely]]
    event.memory = memory_in_use();
  ReplayDraws draws(draws_);  // also if the numbers are unused
  captured_.set_draws(r, draws.key(), draws.first());
  if (captured_.has_plan()) {
    run(r, arguments, where);
    event.plan = r.plan_number;
  } else if (of_ranks_ != nullptr) {
    std::vector<Tensor> leaves;
    Tensor none;
    for (const Place& place : captured_.program().leaves) leaves.push_back(tensor_at(place, r, arguments, none, where));
    r.outputs = of_ranks_->run(leaves, draws.key(), draws.first(), where);
  }
  if (!gives_outputs_) {
    for (const ResultCell& cell : cells_) r.cells.push_back(cell_of_results(cell, r, arguments));
    write_back(r, arguments, where);
    give_results(r, where);
  }
  draws.keep();
  deliver(gives_outputs_ ? r.outputs : r.results, form_.get());
}

}  // namespace fermata

// See captured_call.h.
#include "frontend/engine/captured_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "dispatch/devices.h"
#include "fermata/autograd.h"
#include "fermata/random.h"
#include "frontend/engine/alias.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/error.h"
#include "runtime/effects.h"
#include "runtime/events.h"

namespace fermata {
namespace {

/// The identity that holds the elements of a tensor.
const TensorImpl* cell_of(const Tensor& t) { return t.impl()->view != nullptr ? t.impl()->view->base : t.impl(); }

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
  // An argument that is also written as a captured tensor has two placeholders: only the function itself gets
  // it right.
  must_run_ = changes_an_argument_, has_conditions_ = must_run_ || !settings_.empty();
  if (must_run_) return;
  for (const WriteBack& w : writes_)
    if (w.value.output < 0)
      throw UnsupportedError(
          2701, format_error(2701, "UnsupportedError", "a compiled function assigns an existing tensor to another one",
                             {}, where, "assign a computed value, or copy() it"));
  const auto note_layout = [&](const ProgramNode& leaf) {
    const Place& place = captured_.program().leaves[static_cast<std::size_t>(leaf.leaf)];
    if (!place.is_of_argument() || place.is_gradient) layouts_.emplace_back(place, leaf.type);
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
  gives_outputs_ = writes_.empty() && gradient_changes_.empty() && results_.size() == outputs;
  for (std::size_t i = 0; i < results_.size(); ++i)
    gives_outputs_ = gives_outputs_ && results_[i].output == static_cast<std::int32_t>(i);
}

CapturedCall::CapturedCall(std::span<const Tensor> arguments, std::span<const std::uint64_t> numbers,
                           const CaptureContext& context)
    : numbers_(numbers.begin(), numbers.end()), context_(context), must_run_(true), captured_(Program()) {
  take_arguments(arguments);
  for (std::size_t i = 0; i < arguments.size(); ++i) identities_.push_back(first_of_identity(arguments, i));
}

void CapturedCall::take_arguments(std::span<const Tensor> arguments) {
  for (const Tensor& t : arguments) arguments_.push_back(Layout::of(*t.node())), wants_grad_.push_back(wants_grad(t));
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
  if (place.is_of_leaf()) [[unlikely]]
    r.held.emplace_back();
  const Tensor& t = place.find(arguments, r.held.empty() ? none : r.held.back());
  if (t.node()->pending()) tensor_hooks.materialize(t.node(), "a compiled function uses a pending tensor", where);
  return t;
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
  captured_.run(r);
  for (std::size_t i = 0; i < r.storage.size(); ++i)
    r.outputs.push_back(Tensor(make_leaf(captured_.output_types()[i], r.storage[i].release(), backend, Node::kTensor),
                               DispatchKeySet(backend) | Functionality::dense));
}

Tensor CapturedCall::value_of(const ResultSource& source, const Replayer& r, std::span<const Tensor> arguments) const {
  if (source.output >= 0) return r.outputs[static_cast<std::size_t>(source.output)];
  Tensor held;
  return source.place.find(arguments, held);
}

/// The current value of an identity that is about to be written.
Tensor CapturedCall::result_of(const ResultSource& source, const Replayer& r, std::span<const Tensor> arguments) const {
  Tensor value = value_of(source, r, arguments);
  if (source.output >= 0) return value;
  Tensor held;
  const bool is_written = std::ranges::any_of(
      writes_, [&](const WriteBack& w) { return w.target.find(arguments, held).impl() == value.impl(); });
  return is_written ? with_history(value, {}) : value;
}

void CapturedCall::write_back(const Replayer& r, std::span<const Tensor> arguments, Location where) const {
  const auto give = [](const Tensor& target, const Tensor& from) {
    Node* value = from.node();
    value->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    target.set_node(value);
  };
  for (const WriteBack& w : writes_) {
    Tensor held;
    const Tensor& target = w.target.find(arguments, held);
    const Tensor& value = r.outputs[static_cast<std::size_t>(w.value.output)];
    if (target.impl()->pinned == nullptr) {
      give(target, value);
      continue;
    }
    const NoGradGuard no_grad;  // its address was returned to the caller: elements are copied there
    write(target, value, where);
  }
  std::vector<Tensor> gradients;  // all are read before the first one is replaced
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
    ~Clear() { r.clear(), r.outputs.clear(), r.results.clear(), r.held.clear(); }
  } const clear{r};
  EventScope event([&] { return event_info(EventKind::replay, "compiled function", where); });
  if (event.is_wanted()) [[unlikely]]
    event.plan = captured_.has_plan() ? captured_.plan_number() : 0, event.memory = memory_in_use();
  ReplayDraws draws(draws_);  // also if the numbers are unused
  captured_.set_draws(r, draws.key(), draws.first());
  if (captured_.has_plan()) {
    run(r, arguments, where);
  } else if (of_ranks_ != nullptr) {
    std::vector<Tensor> leaves;
    Tensor none;
    for (const Place& place : captured_.program().leaves) leaves.push_back(tensor_at(place, r, arguments, none, where));
    r.outputs = of_ranks_->run(leaves, draws.key(), draws.first(), where);
  }
  if (!gives_outputs_) {
    for (const ResultSource& source : results_) r.results.push_back(result_of(source, r, arguments));
    write_back(r, arguments, where);
  }
  draws.keep();
  deliver(gives_outputs_ ? r.outputs : r.results, form_.get());
}

}  // namespace fermata

// See call_recording.h.
#include "frontend/engine/call_recording.h"

#include <fmt/format.h>

#include <algorithm>

#include "fermata/random.h"
#include "frontend/transforms/autograd/autograd.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/error.h"

namespace fermata {
namespace {

std::shared_ptr<LeafGradient> leaf_of_identity(const TensorImpl* impl) {
  return impl->view != nullptr || impl->slot == nullptr ? nullptr : grad_state(impl)->leaf;
}

Tensor placeholder(const Tensor& t, const CaptureScope& scope) {
  const Node& n = *t.node();
  Storage* storage = n.storage.load(std::memory_order_acquire);
  storage->retain();
  const Layout l = Layout::of(n);
  Node* leaf = n.is_dense_leaf() ? make_leaf(l.type, storage, n.backend, Node::kTensor)
                                 : make_strided_leaf(l.type, l.strides, l.offset, storage, n.backend, Node::kTensor);
  Tensor out(leaf, t.keys() & kDataKeys);
  scope.mark(leaf);
  if (t.requires_grad()) out.requires_grad(true);
  return out;
}

}  // namespace

CallRecording::CallRecording(std::span<const Tensor> arguments, CompiledCore::Body body, Location where)
    : FunctionRecording(CaptureScope::Of::compiled_function) {
  make_placeholders(arguments);
  drawn = {.key = default_generator().key(), .first = default_generator().offset()};
  {
    const RecordingGuards guards(scope_, default_generator());
    run(body, where);
    draws = drawn.count = guards.draws();
    must_run_ = must_run_ || guards.is_seeded();
    find_changes();
    settings = scope_.settings();
  }
  for (std::size_t i = 0; i < arguments.size(); ++i)
    must_run_ = must_run_ || tensors_[i].requires_grad() != arguments[i].requires_grad();
  if (must_run_) return;
  find_roots(where);
  for (const auto& [node, identity] : scope_.hidden())  // before there are more references
    if (!is_reachable(identity)) constants_.push_back(identity.impl());
  list_program(drawn);
  find_sources();
}

void CallRecording::make_placeholders(std::span<const Tensor> arguments) {
  for (const Tensor& t : arguments) {
    const auto same = std::ranges::find_if(arguments, [&](const Tensor& a) { return a.impl() == t.impl(); });
    identities.push_back(static_cast<std::size_t>(same - arguments.begin()));
    if (identities.back() < tensors_.size()) {
      tensors_.push_back(tensors_[identities.back()]);
      continue;
    }
    const std::size_t argument = tensors_.size();
    tensors_.push_back(placeholder(t, scope_));
    add_stand_in(tensors_.back(), argument);
    const auto leaf = leaf_of_identity(t.impl());
    if (leaf == nullptr || !leaf->grad.defined()) continue;
    const Tensor gradient = placeholder(leaf->grad, scope_);
    leaf_of_identity(tensors_.back().impl())->grad = gradient;
    add_stand_in(gradient, argument, true);
  }
}

void CallRecording::run(CompiledCore::Body body, Location where) {
  CompiledCore::Results given = body(tensors_);
  result_numbers = std::move(given.numbers), form = std::move(given.form);
  take_results(std::move(given.tensors), "compile", where);
  for (const Tensor& t : values_)
    if (t.impl()->payload == nullptr) scope_.touch(t, where);  // the identity of captured tensors is restored
  must_run_ =
      std::ranges::any_of(values_, [](const Tensor& t) { return has_live_history(t) || t.impl()->payload != nullptr; });
}

/// What the function has written, before that is undone.
void CallRecording::find_changes() {
  const auto value_of = [](const Tensor& t) { return tensor_of(t.node()); };
  for (std::size_t i = 0; i < stand_ins_.size(); ++i)
    if (stand_ins_[i].tensor.version() != stand_ins_[i].version)
      written_.push_back({Tensor(), value_of(stand_ins_[i].tensor), static_cast<std::int32_t>(i)});
  for (const CaptureScope::Write& w : scope_.writes()) written_.push_back({w.target, value_of(w.target)});
  for (const CaptureScope::Gradient& g : scope_.gradients())
    if (!is_local(g)) gradients_.emplace_back(g, g.leaf->grad);
}

/// Whether the leaf of a gradient is one that the function has made for itself.
bool CallRecording::is_local(const CaptureScope::Gradient& g) const {
  for (const StandIn& s : stand_ins_)
    if (!s.is_gradient && leaf_of_identity(s.tensor.impl()) == g.leaf) return false;
  for (const auto& [node, identity] : scope_.hidden())
    if (leaf_of_identity(identity.impl()) == g.leaf) return !is_reachable(identity);
  return g.leaf.use_count() == 1;
}

/// Whether somebody outside can reach an identity that the function reads: then it may be written there.
bool CallRecording::is_reachable(const Tensor& hidden) const {
  std::uint64_t own = 0;
  const TensorImpl* const impl = hidden.impl();
  const auto count = [&](const Tensor& t) {
    own += t.impl() == impl;
    own += t.defined() && t.impl()->view != nullptr && t.impl()->view->base == impl;
  };
  for (const auto& [node, identity] : scope_.hidden()) count(identity);
  for (const Tensor& t : values_) count(t);
  for (const CaptureScope::Write& w : scope_.writes()) count(w.target);
  for (const Written& w : written_) count(w.target);
  for (const CaptureScope::Gradient& g : scope_.gradients()) count(g.before), count(g.leaf->grad);
  for (const auto& [gradient, now] : gradients_) count(gradient.before), count(now);
  return impl->refs.load(std::memory_order_acquire) > own;
}

void CallRecording::find_roots(Location where) {
  const auto root = [&](const Tensor& t) {
    Node* n = t.node();
    if (n->pending()) add_root(n);
  };
  for (const Tensor& t : values_) root(t);
  for (const Written& w : written_) root(w.value);
  for (const auto& [gradient, now] : gradients_)
    if (now.defined() && now.impl() != gradient.before.impl()) root(now);
  if (last_effect_.defined()) root(last_effect_);
  for (const Node* n : roots_)
    if (n->backend != roots_.front()->backend)
      throw DeviceError(1404, format_error(1404, "DeviceError",
                                           fmt::format("a compiled function uses both {} and {}",
                                                       kBackendNames[static_cast<std::size_t>(roots_.front()->backend)],
                                                       kBackendNames[static_cast<std::size_t>(n->backend)]),
                                           {}, where, "compile the part of each device separately"));
}

Place CallRecording::gradient_place(const CaptureScope::Gradient& gradient) const {
  for (const StandIn& s : stand_ins_)
    if (!s.is_gradient && leaf_of_identity(s.tensor.impl()) == gradient.leaf)
      return {.argument = s.argument, .is_gradient = true};
  return {.leaf = gradient.leaf};
}

Place CallRecording::place_of(const Node* leaf) const {
  Place place = FunctionRecording::place_of(leaf);
  if (place.is_of_argument()) return place;
  for (const auto& [gradient, now] : gradients_)
    if (gradient.value == leaf) return {.leaf = gradient.leaf};
  if (std::ranges::find(constants_, place.hidden.impl()) != constants_.end()) place.is_constant = true;
  return place;
}

ResultSource CallRecording::source_of(const Tensor& value) const {
  const Node* n = value.node();
  if (const std::int32_t output = output_of(n); output >= 0) return {.output = output};
  return {.place = place_of(n)};
}

void CallRecording::find_sources() {
  for (const Tensor& t : values_) results.push_back(source_of(t));
  for (const Written& w : written_) {
    Place target{.hidden = w.target};
    if (w.placeholder >= 0) {
      const StandIn& s = stand_ins_[static_cast<std::size_t>(w.placeholder)];
      target = {.argument = s.argument, .is_gradient = s.is_gradient};
    }
    for (const auto& [gradient, now] : gradients_)
      if (w.target.defined() && gradient.before.impl() == w.target.impl()) target = gradient_place(gradient);
    writes.push_back({std::move(target), source_of(w.value)});
  }
  for (const auto& [gradient, now] : gradients_) {
    const auto first = std::ranges::find_if(gradients_, [&](const auto& g) { return g.first.value == gradient.value; });
    gradient_conditions.push_back(
        {gradient_place(gradient), gradient.value != nullptr, static_cast<std::size_t>(first - gradients_.begin())});
    if (now.impl() == gradient.before.impl()) continue;
    gradient_changes.push_back(
        {gradient_place(gradient), !now.defined(), now.defined() ? source_of(now) : ResultSource{}});
  }
}

}  // namespace fermata

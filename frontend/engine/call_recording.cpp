// See call_recording.h.
#include "frontend/engine/call_recording.h"

#include <fmt/format.h>

#include <algorithm>

#include "fermata/random.h"
#include "frontend/engine/alias.h"
#include "frontend/transforms/autograd/autograd.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/error.h"

namespace fermata {
namespace {

std::shared_ptr<LeafGradient> leaf_of_identity(const TensorImpl* impl) {
  return impl->view != nullptr || impl->slot == nullptr ? nullptr : grad_state(impl)->leaf;
}

Tensor placeholder(const Tensor& t, const CaptureScope& scope) {
  Node* const leaf = leaf_like(*t.node());
  Tensor out(leaf, t.keys() & kDataKeys);
  scope.mark(leaf);
  if (t.impl()->view == nullptr && t.requires_grad()) out.requires_grad(true);
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
    if (!must_run_) find_cells();
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
    const Place place{.argument = static_cast<std::int32_t>(tensors_.size())};
    const ViewInfo* const view = t.impl()->view;
    if (view == nullptr) {
      tensors_.push_back(make_cell(t.impl(), place));
      continue;
    }
    const Tensor base = make_cell(view->base, {.argument = place.argument, .is_base = true});
    tensors_.push_back(placeholder(t, scope_));
    TensorImpl* const impl = tensors_.back().impl();
    base.impl()->refs.fetch_add(1, std::memory_order_relaxed);
    impl->view = std::make_unique<ViewInfo>(base.impl(), *view).release();
    add_stand_in(tensors_.back(), place);
  }
}

/// The placeholder of what holds the elements of arguments: of one, or of those that are views of it.
Tensor CallRecording::make_cell(TensorImpl* cell, Place place) {
  const auto known = std::ranges::find(bases_, cell, [](const auto& b) { return b.first; });
  if (known != bases_.end()) return known->second;
  const Tensor real = handle_of(cell);
  if (real.node()->pending()) tensor_hooks.materialize(real.node(), "an argument of a compiled function", {});
  const Tensor made = placeholder(real, scope_);
  bases_.emplace_back(cell, made);
  add_stand_in(made, place);
  const auto leaf = leaf_of_identity(cell);
  if (leaf == nullptr || !leaf->grad.defined()) return made;
  const Tensor gradient = placeholder(leaf->grad, scope_);
  leaf_of_identity(made.impl())->grad = gradient;
  place.is_gradient = true, place.is_base = false;
  add_stand_in(gradient, place);
  return made;
}

void CallRecording::run(CompiledCore::Body body, Location where) {
  CompiledCore::Results given = body(tensors_);
  result_numbers = std::move(given.numbers), form = std::move(given.form);
  take_results(std::move(given.tensors), "compile", where);
  for (const Tensor& t : values_)
    if (t.impl()->payload == nullptr) scope_.operand(t, where);  // the identity of captured tensors is restored
  must_run_ =
      std::ranges::any_of(values_, [](const Tensor& t) { return has_live_history(t) || t.impl()->payload != nullptr; });
}

/// What the function has written, before that is undone.
void CallRecording::find_changes() {
  const auto value_of = [](const Tensor& t) { return tensor_of(t.node()); };
  for (std::size_t i = 0; i < stand_ins_.size(); ++i)
    if (stand_ins_[i].tensor.impl()->view == nullptr && stand_ins_[i].tensor.version() != stand_ins_[i].version)
      written_.push_back({Tensor(), value_of(stand_ins_[i].tensor), static_cast<std::int32_t>(i)});
  for (const CaptureScope::Write& w : scope_.writes()) written_.push_back({w.target, value_of(w.target)});
  for (const CaptureScope::Gradient& g : scope_.gradients())
    if (!is_local(g)) gradients_.emplace_back(g, g.leaf->grad);
}

/// Whether the leaf of a gradient is one that the function has made for itself.
bool CallRecording::is_local(const CaptureScope::Gradient& g) const {
  for (const StandIn& s : stand_ins_)
    if (!s.place.is_gradient && leaf_of_identity(s.tensor.impl()) == g.leaf) return false;
  for (const auto& [node, identity] : scope_.hidden())
    if (leaf_of_identity(identity.impl()) == g.leaf) return !is_reachable(identity);
  return g.leaf.use_count() == 1;
}

/// Whether somebody outside can reach an identity that the function reads: then it may be written there.
bool CallRecording::is_reachable(const Tensor& hidden) const {
  std::uint64_t own = 0;
  const TensorImpl* const impl = hidden.impl();
  std::vector<const TensorImpl*> views;  // each holds one reference, however many handles there are
  const auto count = [&](const Tensor& t) {
    own += t.impl() == impl;
    if (!t.defined() || t.impl()->view == nullptr || t.impl()->view->base != impl) return;
    if (std::ranges::find(views, t.impl()) != views.end()) return;
    views.push_back(t.impl());
    ++own;
  };
  for (const auto& [node, identity] : scope_.hidden()) count(identity);
  for (const Tensor& t : values_) count(t);
  for (const CaptureScope::Write& w : scope_.writes()) count(w.target);
  for (const Written& w : written_) count(w.target);
  for (const CaptureScope::Gradient& g : scope_.gradients()) count(g.before), count(g.leaf->grad);
  for (const auto& [gradient, now] : gradients_) count(gradient.before), count(now);
  return impl->refs.load(std::memory_order_acquire) > own;
}

/// The place of an identity that existed before the call and is known outside of it.
std::optional<Place> CallRecording::outside_place(TensorImpl* cell) const {
  for (const StandIn& s : stand_ins_)
    if (s.tensor.impl() == cell) return s.place;
  const auto is_it = [&](const Tensor& t) { return cell_of(t) == cell && is_reachable(t); };
  const bool is_outside =
      std::ranges::any_of(scope_.hidden(), [&](const auto& h) { return is_it(h.second); }) ||
      std::ranges::any_of(scope_.writes(), [&](const CaptureScope::Write& w) { return is_it(w.target); });
  return is_outside ? std::optional(Place{.hidden = handle_of(cell)}) : std::nullopt;
}

/// Whether a write to a result would change another one, or the other way.
bool CallRecording::aliases_another_result(std::size_t value) const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (i != value && values_[i].impl() != values_[value].impl() && may_share_elements(values_[i], values_[value]))
      return true;
  return false;
}

/// Results are views of what they are views of in the function, if that is known outside or a result too. Else nobody
/// could tell, and the plan gives the elements of a view alone.
void CallRecording::find_cells() {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const Tensor& t = values_[i];
    TensorImpl* cell = cell_of(t);
    const bool is_outside = outside_place(cell).has_value();
    if (!is_outside && !aliases_another_result(i)) cell = t.impl();
    const auto known = std::ranges::find(cells_, cell);
    results.push_back({static_cast<std::size_t>(known - cells_.begin()), {}});
    if (cell != t.impl()) results.back().view = t.impl()->view->steps;
    if (known != cells_.end()) continue;
    cells_.push_back(cell), cell_values_.push_back(tensor_of(handle_of(cell).node()));
    cells.push_back({.source = {}, .is_place = is_outside});
  }
}

void CallRecording::find_roots(Location where) {
  const auto root = [&](const Tensor& t) {
    Node* n = t.node();
    if (n->pending()) add_root(n);
  };
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (!cells[i].is_place) root(cell_values_[i]);
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
    if (!s.place.is_gradient && leaf_of_identity(s.tensor.impl()) == gradient.leaf)
      return {.argument = s.place.argument, .is_gradient = true};
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
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].is_place) {
      cells[i].source.place = *outside_place(cells_[i]);
      continue;
    }
    cells[i].source = source_of(cell_values_[i]);
    for (std::size_t k = 0; k < i; ++k)
      cells[i].shares_value |= cells[i].source.output >= 0 && cells[k].source.output == cells[i].source.output;
  }
  for (const Written& w : written_) {
    Place target{.hidden = w.target};
    if (w.placeholder >= 0) { target = stand_ins_[static_cast<std::size_t>(w.placeholder)].place; }
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

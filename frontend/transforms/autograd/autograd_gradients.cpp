// The public face of autograd: the gradient members of Tensor, and fermata/autograd.h.
#include "fermata/autograd.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/autograd_backward.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "frontend/transforms/autograd/function_tape.h"
#include "ir/error.h"

namespace fermata {

using detail::FunctionGradient;
namespace {

[[noreturn]] void fail(int code, std::string_view what, std::string_view label, const Tensor& x, Location where,
                       std::string_view hint) {
  throw GradientError(
      code, format_error(code, "GradientError", what, {{label, to_string(x.dtype(), x.shape()), ""}}, where, hint));
}

GradEdge edge_or_error(std::string_view what, const Tensor& x, Location where) {
  GradEdge edge = grad_edge(x);
  if (!edge && is_batched(x))
    fail(1714, fmt::format("backward: {} has no history inside this vmap", what), what.substr(0, 1), x, where,
         "use grad(f) for gradients inside vmap; take gradients of captured tensors outside, of the result of vmap");
  if (!edge)
    fail(1714, fmt::format("backward: {} has no history", what), what.substr(0, 1), x, where,
         "call requires_grad(true) on the tensors that it is computed from, before computing it");
  return edge;
}

LeafGradient* leaf_of(const Tensor& tensor) {
  const TensorImpl* impl = tensor.impl();
  return impl->view != nullptr || impl->slot == nullptr ? nullptr : grad_state(impl)->leaf.get();
}

/// The same, to read or change the gradient: a function that is being compiled has to know.
LeafGradient* touched_leaf(const Tensor& tensor) {
  LeafGradient* leaf = leaf_of(tensor);
  if (leaf != nullptr && in_capture_scope()) [[unlikely]]
    capture_scope->touch_gradient(grad_state(tensor.impl())->leaf);
  return leaf;
}

void make_leaf_of(const Tensor& tensor, Location where) {
  GradState& state = ensure_grad_state(tensor);
  state.leaf = std::make_shared<LeafGradient>();
  state.edge = make_grad_node(Op::input, 0, where);
  state.edge->detail = std::make_unique<GradDetail>();
  state.edge->detail->leaf = state.leaf;
  tensor.impl()->keys = tensor.impl()->keys | Functionality::autograd;
}

std::vector<Tensor> gradients_of(const Tensor& y, const GradEdge& root, std::span<const GradEdge> targets,
                                 std::span<const Tensor> xs, const TapeScan& scan, const Tensor& seed,
                                 BackwardOptions options, Location where) {
  std::vector<Tensor> result(xs.size());
  if (root) result = run_backward(root, seed_gradient(y, seed, where), &scan, targets, options, where);
  const vjp::LineGuard line(where);
  for (std::size_t i = 0; i < xs.size(); ++i)
    if (!result[i].defined()) result[i] = vjp::full(0, {xs[i].dtype(), xs[i].shape()}, xs[i]).tensor();
  return result;
}

}  // namespace

bool Tensor::requires_grad(Location where) const {
  cell("requires_grad", where);
  return static_cast<bool>(grad_edge(*this));
}

Tensor& Tensor::requires_grad(bool wanted, Location where) {
  cell("requires_grad", where);
  const bool is_leaf = leaf_of(*this) != nullptr;
  if (wanted == is_leaf && (is_leaf || !requires_grad())) return *this;
  if (impl_->view != nullptr)
    fail(1717, "requires_grad: a view has the gradient of its base", "x", *this, where,
         "mark the base of the view, or a copy of the view");
  if (!is_leaf && requires_grad())
    fail(1717, "requires_grad: the tensor is computed from others and has a history", "x", *this, where,
         "detach() returns the same value without its history");
  if (wanted && is_composite_tensor(*this))
    fail(1717, fmt::format("requires_grad: {} has the gradients of its components", impl_->payload->kind()), "x", *this,
         where, "mark the tensors that it is built from");
  if (wanted && !is_inexact(dtype()))
    fail(1717, fmt::format("requires_grad: {} values have no gradients", name(dtype())), "x", *this, where,
         "cast it with astype() first");
  if (wanted) {
    make_leaf_of(*this, where);
  } else {
    delete std::exchange(impl_->slot, nullptr);
    impl_->keys = impl_->keys - Functionality::autograd;
  }
  return *this;
}

Tensor Tensor::grad(Location where) const {
  cell("grad", where);
  const LeafGradient* leaf = touched_leaf(*this);
  return leaf != nullptr ? leaf->grad : Tensor();
}

void Tensor::zero_grad(Location where) const {
  cell("zero_grad", where);
  if (LeafGradient* leaf = touched_leaf(*this)) leaf->grad = Tensor();
}

void Tensor::backward(const Tensor& seed, bool retain_graph, Location where) const {
  cell("backward", where);
  const GradEdge root = edge_or_error("y", *this, where);
  run_backward(root, seed_gradient(*this, seed, where), nullptr, {},
               {.retain_graph = retain_graph, .level = level_of(*this)}, where);
}

void Tensor::backward(Location where) const { backward(Tensor(), false, where); }

Tensor Tensor::detach(Location where) const {
  cell("detach", where);
  return detach_all_levels(*this);
}

std::vector<Tensor> gradients(const Tensor& y, std::span<const Tensor> xs, const Tensor& seed, bool create_graph,
                              bool retain_graph, Location where) {
  require_defined("gradients", y, where);
  for (const Tensor& x : xs) require_defined("gradients", x, where);
  for (const Tensor& x : xs)
    if (depth_of(x) < depth_of(y) && x.requires_grad())
      fail(1747, "gradients: x was not computed inside the vmap that y was computed in", "x", x, where,
           "pass x to grad(f) as an argument; take gradients of the whole batch outside vmap");
  const GradEdge root = edge_or_error("y", y, where);
  std::vector<GradEdge> targets;
  for (std::size_t i = 0; i < xs.size(); ++i) targets.push_back(edge_or_error(fmt::format("xs[{}]", i), xs[i], where));
  const TapeScan scan = scan_tape(root, targets);
  return gradients_of(
      y, root, targets, xs, scan, seed,
      {.retain_graph = retain_graph || create_graph, .create_graph = create_graph, .level = level_of(y)}, where);
}

std::vector<Tensor> gradients(const Tensor& y, std::initializer_list<Tensor> xs, const Tensor& seed, bool create_graph,
                              bool retain_graph, Location where) {
  return gradients(y, std::span(xs.begin(), xs.size()), seed, create_graph, retain_graph, where);
}

Tensor FunctionGradient::mark(const Tensor& x) {
  require_defined("grad", x, where_);
  if (!is_inexact(x.dtype()))
    fail(1717, fmt::format("grad: {} values have no gradients", name(x.dtype())), "x", x, where_,
         "cast it with astype() first");
  auto [own, node] = make_mark(x, records_outside_, where_);
  marks_.push_back(with_history(own, node));
  return with_history(own, std::move(node));
}

std::vector<Tensor> FunctionGradient::differentiate(Tensor& y) {
  require_defined("grad", y, where_);
  std::vector<GradEdge> targets;
  for (const Tensor& mark : marks_) targets.push_back(grad_edge(mark));
  const VmapLevel level = vmap_frame != nullptr ? vmap_frame->level : VmapLevel{};
  const bool from_outside = depth_of(y) < level.depth;  // then its history is too
  const GradEdge root = from_outside ? GradEdge() : grad_edge(y);
  const TapeScan scan = root ? scan_tape(root, targets) : TapeScan{};
  // Is there anything outside that this can be differentiated for? Otherwise the result needs no history.
  const bool keep = records_outside_ && scan.reaches_others;
  std::vector<Tensor> result = gradients_of(y, root, targets, marks_, scan, {},
                                            {.retain_graph = keep, .create_graph = keep, .level = level}, where_);
  keeps_history_ = keep || from_outside;
  if (!keeps_history_) y = without_history(y);
  if (!records_outside_ && level.depth != 0) {
    y = y.detach();
    for (Tensor& gradient : result) gradient = gradient.detach();
  }
  return result;
}

void FunctionGradient::promote_and_broadcast(Tensor& auxiliary) const {
  const unsigned depth = vmap_frame != nullptr ? vmap_frame->level.depth : 0;
  if (!records_outside_)
    auxiliary = auxiliary.detach();
  else if (!keeps_history_ && depth_of(auxiliary) == depth)
    auxiliary = without_history(auxiliary);
}

}  // namespace fermata

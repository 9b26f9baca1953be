// See capture_scope.h.
#include "frontend/engine/capture_scope.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "frontend/transforms/autograd/autograd_tape.h"
#include "runtime/effects.h"

namespace fermata {

constinit thread_local CaptureScope* capture_scope = nullptr;

CaptureScope::CaptureScope(Of of) : outer_(capture_scope), of_(of) {
  static std::atomic<std::uint32_t> last{0};
  do number_ = last.fetch_add(1, std::memory_order_relaxed) + 1;
  while (number_ == 0 || number_ == kUnnoticed);
  capture_scope = this;
}

void CaptureScope::leave() {
  if (capture_scope == this) capture_scope = outer_;
}

CaptureScope::~CaptureScope() {
  leave();
  for (const Write& w : writes_)
    if (drop_references(w.before->refs, Node::kTensor)) destroy_node(w.before);
}

void CaptureScope::touch(const Tensor& tensor, Location where) {
  Node* node = tensor.node();
  if (made(node) || hidden_.contains(node)) return;
  if (node->pending() && of_ == Of::compiled_function && !made_in_outer(node)) {
    // This value is captured: computing it is not part of the function.
    struct Outside {
      CaptureScope* scope = std::exchange(capture_scope, nullptr);
      ~Outside() { capture_scope = scope; }
    } outside;
    const EffectScope effects;  // those that the function has recorded happen when it runs
    tensor_hooks.materialize(node, "a compiled function uses a pending tensor", where);
  }
  hidden_.emplace(node, tensor);
}

bool CaptureScope::made_in_outer(const Node* node) const {
  for (const CaptureScope* s = outer_; s != nullptr; s = s->outer_)
    if (s->made(node)) return true;
  return false;
}

void CaptureScope::touch_gradient(const std::shared_ptr<LeafGradient>& leaf) {
  if (std::ranges::any_of(gradients_, [&](const Gradient& g) { return g.leaf == leaf; })) return;
  // Of the scopes around this one too: what changes here changes there.
  if (outer_ != nullptr) outer_->touch_gradient(leaf);
  Node* value = nullptr;
  if (leaf->grad.defined()) touch(leaf->grad, {}), value = leaf->grad.node();
  gradients_.push_back({leaf, leaf->grad, value});
}

void CaptureScope::read_setting(const Tensor& cell, double value, bool only_zero) {
  if (outer_ != nullptr) outer_->read_setting(cell, value, only_zero);
  const auto known = [&](const SettingRead& s) { return s.cell.impl() == cell.impl() && s.only_zero == only_zero; };
  if (std::ranges::none_of(settings_, known)) settings_.push_back({cell, value, only_zero});
}

bool CaptureScope::SettingRead::holds() const {
  const double now = *static_cast<const double*>(cell.node()->storage.load(std::memory_order_acquire)->data);
  return only_zero ? (now == 0) == (value == 0)
                   : std::bit_cast<std::uint64_t>(now) == std::bit_cast<std::uint64_t>(value);
}

void CaptureScope::undo_gradients() {
  for (const Gradient& g : gradients_) g.leaf->grad = g.before;
}

void CaptureScope::written(TensorImpl* impl) {
  const auto known =
      std::any_of(writes_.begin(), writes_.end(), [&](const Write& w) { return w.target.impl() == impl; });
  if (known || impl->value == nullptr || made(impl->value)) return;  // created inside
  impl->refs.fetch_add(1, std::memory_order_relaxed);
  impl->value->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
  writes_.push_back({Tensor(impl), impl->value});
}

const Tensor* CaptureScope::identity_of(const Node* leaf) const {
  const auto found = hidden_.find(leaf);
  return found == hidden_.end() ? nullptr : &found->second;
}

void CaptureScope::undo_writes() {
  for (const Write& w : writes_) {
    w.before->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    w.target.set_node(w.before);
  }
}

}  // namespace fermata

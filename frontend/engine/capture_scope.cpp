// See capture_scope.h.
#include "frontend/engine/capture_scope.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "frontend/engine/alias.h"
#include "frontend/engine/recorded_program.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "runtime/effects.h"

namespace fermata {

constinit thread_local CaptureScope* capture_scope = nullptr;

/// Of the tensors that a scope makes.
static std::uint64_t stamp(std::uint32_t scope) { return std::uint64_t{scope} << kVersionBits; }

CaptureScope::CaptureScope(Of of) : outer_(capture_scope), of_(of) {
  static std::atomic<std::uint32_t> last{0};
  do number_ = last.fetch_add(1, std::memory_order_relaxed) + 1;
  while (number_ == 0 || number_ == kUnnoticed);
  set(this);
}

/// Makes a scope, or none, the one of this thread.
void CaptureScope::set(CaptureScope* scope) {
  capture_scope = scope, first_version = scope != nullptr ? stamp(scope->number_) : 0;
}

void CaptureScope::leave() {
  if (capture_scope == this) set(outer_);
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
    const OutsideScopes captured;  // computing it is not part of the function
    const EffectScope effects;     // those that the function has recorded happen when it runs
    tensor_hooks.materialize(node, "a compiled function uses a pending tensor", where);
  }
  hide(node, tensor);
}

void CaptureScope::hide(Node* node, const Tensor& identity) {
  node->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
  values_.push_back(Tensor(node, DispatchKeySet(node->backend) | Functionality::dense));
  hidden_.emplace(node, identity);
}

/// Whether an identity was made in this scope.
bool CaptureScope::made(const TensorImpl* identity) const {
  return identity->version >> kVersionBits << kVersionBits == stamp(number_);
}

/// Whether a captured tensor has a value from before the scope that was given to it there, not by the function.
bool CaptureScope::has_own_value(const Tensor& tensor) const {
  const TensorImpl* const cell = cell_of(tensor);
  return !made(tensor.impl()) && std::ranges::none_of(writes_, [&](const Write& w) { return w.target.impl() == cell; });
}

const Tensor& CaptureScope::operand(const Tensor& tensor, Location where) {
  touch(tensor, where);
  const Node* const node = tensor.node();
  const auto found = hidden_.find(node);
  if (found == hidden_.end() || found->second.impl() == tensor.impl() || !has_own_value(tensor)) [[likely]]
    return tensor;
  // Gradients with one value are a condition of the recording.
  if (std::ranges::any_of(gradients_, [&](const Gradient& g) { return g.value == node; })) return tensor;
  Tensor& stand_in = stand_ins_[tensor.impl()];
  if (!stand_in.defined()) {
    stand_in = Tensor(leaf_like(*node), tensor.keys() & kDataKeys);
    hide(stand_in.node(), tensor);
  }
  return stand_in;
}

void CaptureScope::take_operands(std::span<const Operand*> operands, Location where) {
  for (const Operand*& o : operands) {
    if (o == nullptr || !o->is_tensor()) continue;
    const Tensor& t = operand(o->tensor(), where);
    if (&t != &o->tensor()) o = &operands_.emplace_back(t, o->where());
  }
}

std::span<const Tensor> CaptureScope::take_operands(std::span<const Tensor> tensors, std::vector<Tensor>& own,
                                                    Location where) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = operand(tensors[i], where);
    if (&t == &tensors[i]) continue;
    if (own.empty()) own.assign(tensors.begin(), tensors.end());
    own[i] = t;
  }
  return own.empty() ? tensors : own;
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
  if (known || impl->value == nullptr || made(impl) || made(impl->value)) return;
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

// See autograd_tape.h.
#include "frontend/transforms/autograd/autograd_tape.h"

#include <algorithm>

#include "frontend/engine/capture_scope.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/fork.h"
#include "ir/scope.h"
#include "runtime/allocator.h"

namespace fermata {

constinit thread_local std::uint64_t tape_scope = 0;

namespace {

std::uint32_t block_class(std::size_t operands) {
  return BlockPool::class_of(sizeof(GradNode) + operands * sizeof(GradOperand));
}

/// The nodes of a view's steps, on top of its base's present edge.
GradEdge derive_view_edge(const ViewInfo& view, GradEdge below) {
  Shape from(view.base->value->sizes());
  for (const ViewStep& step : view.steps) {
    GradEdge next = make_grad_node(step.op, 1, below->where);
    next->depth = below->depth + 1;
    next->detail = std::make_unique<GradDetail>();
    next->detail->attributes.assign(step.attributes.begin(), step.attributes.end());
    GradOperand& operand = next->operands()[0];
    operand.dtype = view.base->value->dtype;
    operand.shape = std::make_unique<Shape>(from);
    operand.edge = std::move(below);
    below = std::move(next);
    from = step.sizes;
  }
  return below;
}

GradEdge view_edge(const Tensor& tensor) {
  const ViewInfo& view = *tensor.impl()->view;
  const GradState* base = grad_state(view.base);
  if (base == nullptr || !base->edge) return {};
  // Threads may share a view that none of them writes.
  static auto& mutex = *new ForkSafeMutex;
  const std::lock_guard lock(mutex);
  GradState& state = ensure_grad_state(tensor);
  if (!state.edge || state.base_edge != base->edge || state.base_version != view.base->version) {
    state.edge = derive_view_edge(view, base->edge);
    state.base_edge = base->edge;
    state.base_version = view.base->version;
  }
  return state.edge;
}

}  // namespace

SavedValue::SavedValue(const Tensor& tensor) : node_(tensor.node()), keys_(tensor.keys() & kDataKeys) {
  node_->tape.fetch_add(1, std::memory_order_relaxed);
  node_->refs.fetch_add(Node::kEdge, std::memory_order_relaxed);
}

SavedValue::SavedValue(const Tensor& tensor, unsigned depth) {
  if (depth == 0)
    *this = SavedValue(tensor);
  else
    wrapped_ = depth_of(tensor) == depth ? without_history(tensor) : same_value(tensor);
}

void SavedValue::release() {
  wrapped_ = Tensor();
  if (node_ == nullptr) return;
  node_->tape.fetch_sub(1, std::memory_order_relaxed);
  drop_edge(std::exchange(node_, nullptr));
}

Tensor SavedValue::unpack() const {
  if (wrapped_.defined()) return wrapped_;
  node_->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
  return Tensor(node_, keys_);
}

bool GradNode::saves_values() const {
  return result || std::ranges::any_of(operands(), [](const GradOperand& o) { return static_cast<bool>(o.value); });
}

void GradNode::spend() {
  if (detail != nullptr && detail->custom_backward != nullptr) return detail->custom_backward->release();
  if (!saves_values()) return;
  spent = true;
  result.release();
  for (GradOperand& o : operands()) o.value.release();
}

GradEdge make_grad_node(Op op, std::size_t count, Location where) {
  void* const block = count <= kMaxPooledOperands ? BlockPool::allocate(block_class(count))
                                                  : ::operator new(sizeof(GradNode) + count * sizeof(GradOperand));
  auto* node = ::new (block) GradNode;
  node->op = op, node->count = static_cast<std::uint32_t>(count), node->where = where, node->rule = &vjp_rule(op);
  if (has_scope_or_callers()) [[unlikely]]
    node->where = within_scope(where), node->in_scope = !scope_of(node->where).empty();
  node->scope = tape_scope;
  auto* operands = reinterpret_cast<GradOperand*>(node + 1);
  for (std::size_t i = 0; i < count; ++i) ::new (operands + i) GradOperand;
  return GradEdge(node);
}

GradEdge result_edge(GradNode* call, std::int64_t result) {
  GradEdge edge = make_grad_node(Op::copy, 1, call->where);
  edge->depth = call->depth + 1;
  edge->detail = std::make_unique<GradDetail>();
  edge->detail->result = result;
  call->refs.fetch_add(1, std::memory_order_relaxed);
  edge->operands()[0].edge = GradEdge(call);
  return edge;
}

void destroy_tape(GradNode* dead) {
  // A tape may be a chain of millions, so the dead are linked through a field that nothing reads any more.
  const auto link = [](GradNode* n, GradNode* next) { n->rule = reinterpret_cast<const VjpRule*>(next); };
  link(dead, nullptr);
  while (dead != nullptr) {
    GradNode* n = dead;
    dead = const_cast<GradNode*>(reinterpret_cast<const GradNode*>(n->rule));
    for (GradOperand& o : n->operands()) {
      GradNode* below = o.edge.release();
      if (below != nullptr && drop_references(below->refs, 1u)) link(below, dead), dead = below;
      o.~GradOperand();
    }
    const std::size_t count = n->count;
    n->~GradNode();
    if (count <= kMaxPooledOperands)
      BlockPool::release(n, block_class(count));
    else
      ::operator delete(n);
  }
}

void* GradState::operator new(std::size_t bytes) { return BlockPool::allocate(BlockPool::class_of(bytes)); }
void GradState::operator delete(void* block, std::size_t bytes) noexcept {
  BlockPool::release(block, BlockPool::class_of(bytes));
}

GradState& ensure_grad_state(const Tensor& tensor) {
  TensorImpl* impl = tensor.impl();
  if (impl->slot == nullptr) impl->slot = new GradState;
  return *grad_state(impl);
}

GradEdge grad_edge(const Tensor& tensor) {
  const TensorImpl* impl = tensor.impl();
  if (impl->view != nullptr) return view_edge(tensor);
  const GradState* state = grad_state(impl);
  return state != nullptr ? state->edge : GradEdge();
}

Tensor with_history(const Tensor& value, GradEdge edge) {
  if (is_composite_tensor(value)) return value;  // histories belong to the parts
  // A compiled function binds a captured tensor by the caller's identity, not by this one.
  const Tensor& own = in_capture_scope() ? capture_scope->operand(value, {}) : value;
  Tensor result;
  if (is_batched(value)) [[unlikely]] {
    const BatchedTensor& b = batched_tensor(value);
    result = make_batched(b.physical, b.level, b.batched);
  } else {
    Node* node = own.node();
    node->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    result = Tensor(node, value.keys() & kDataKeys);
  }
  if (edge) {
    ensure_grad_state(result).edge = std::move(edge);
    result.impl()->keys = result.impl()->keys | Functionality::autograd;
  }
  return result;
}

}  // namespace fermata

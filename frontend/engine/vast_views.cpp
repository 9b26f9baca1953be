// See vast_views.h.
#include "frontend/engine/vast_views.h"

#include "dispatch/op_call.h"
#include "frontend/engine/capture.h"
#include "frontend/engine/sync.h"
#include "ir/op_traits.h"
#include "ir/ops/views.h"
#include "ir/view.h"
#include "runtime/walk.h"

namespace fermata {
namespace {

/// What a pending value repeats; undefined for other values. Another thread may be computing it.
Tensor broadcast_element(const Node& broadcast, DispatchKeySet keys) {
  Tensor element;
  if (broadcast.op != Op::broadcast_to) return element;
  look_at_nodes([&] {
    if (!broadcast.pending()) return;
    Node* const n = broadcast.operand(0);
    n->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    element = Tensor(n, data_keys(keys, n->backend));
  });
  return element;
}

/// Records a view op for the call of another one.
Tensor record(const Call& call, Op op, const Tensor& x, const Attributes& attributes) {
  const Call own{operator_entry(op), call.keys, call.where};
  return record_node(own, {&x, 1}, attributes, 0);
}
template <class O> Tensor record(const Call& call, Op op, const Tensor& x, const O& view, const Shape& shape) {
  const Shape from(x.node()->sizes());
  return from == shape ? x : record(call, op, x, EncodedAttributes(view, x.node()->dtype));
}

/// A slice of what is broadcast: axes that are repeated have one element.
ops::Slice slice_of_element_axes(const ops::Slice& whole, const Shape& repeated, const Shape& counts, Shape& start,
                                 Shape& step) {
  for (unsigned i = 0; i < counts.rank(); ++i) {
    const bool is_one = repeated[i] == 1;
    start.push_back(is_one ? 0 : whole.start.value[i]), step.push_back(is_one ? 1 : whole.step.value[i]);
  }
  return {.start = {start}, .step = {step}, .counts = {counts}};
}

}  // namespace

Tensor record_vast_view(const Call& call, const Tensor& x, const TensorType& type, const Attributes& attributes) {
  const Node& broadcast = *x.node();
  Tensor value = broadcast_element(broadcast, call.keys);
  if (!value.defined()) return {};
  const Op op = call.entry.op;
  const Node* const element = value.node();
  // The element with an axis for each of the broadcast; those that are repeated have stride 0.
  const Shape whole(broadcast.sizes());
  Shape padded(whole), strides;
  for (unsigned i = 0, lead = whole.rank() - element->rank; i < whole.rank(); ++i)
    padded[i] = i < lead ? 1 : element->sizes()[i - lead];
  strides = dense_strides(padded);
  for (unsigned i = 0; i < whole.rank(); ++i)
    if (padded[i] != whole[i]) strides[i] = 0;
  Shape sizes(whole);
  std::int64_t offset = 0;
  if (!apply_view(op, attributes.integers, type.shape, sizes, strides, offset)) return {};
  Shape seen = type.shape;
  for (unsigned i = 0; i < seen.rank(); ++i)
    if (strides[i] == 0) seen[i] = 1;

  if (offset == 0 && element_count(seen) == element_count(padded) && is_dense(seen, strides)) {
    value = record(call, Op::reshape, value, ops::Reshape{.shape = {seen}}, seen);
  } else {
    value = record(call, Op::reshape, value, ops::Reshape{.shape = {padded}}, padded);
    if (op == Op::slice) {
      const auto slice = decode<ops::Slice>({attributes.integers, type.shape, {}, {}});
      Shape start, step;
      value = record(call, op, value, slice_of_element_axes(slice, padded, seen, start, step), seen);
    } else if (op == Op::permute) {
      value = record(call, op, value, attributes);
    } else {
      return {};
    }
  }
  return record(call, Op::broadcast_to, value, ops::BroadcastTo{.shape = {type.shape}}, type.shape);
}

}  // namespace fermata

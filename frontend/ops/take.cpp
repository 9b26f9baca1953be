// take and index_add: elements by their position along an axis. See fermata/ops.h.
#include <vector>

#include "fermata/ops.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "ir/infer.h"

namespace fermata {

Tensor take(const Tensor& x, const Tensor& index, std::int64_t axis, Location where) {
  require_defined(Op::take, {x, where}), require_defined(Op::take, {index, where});
  axis = normalize_axis("take", axis, type_of(x), where);
  const Tensor operands[] = {x, index};
  return general_call<Op::take>({.axis = {axis}}, operands, where);
}

Tensor index_add(const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis, Location where) {
  for (const Tensor* t : {&x, &index, &source}) require_defined(Op::index_add, {*t, where});
  axis = normalize_axis("index_add", axis, type_of(x), where);
  const Tensor operands[] = {x, index, astype(source, x.dtype(), where)};
  return general_call<Op::index_add>({.axis = {axis}}, operands, where);
}

// Gradients and batching rules.
namespace vjp {
namespace {

VjpTensor take_vjp(const VjpArgs& args, unsigned) {
  return index_add(full(0, {args.g.dtype(), args.shape(0)}, args.g), args.x[1], args.g,
                   args.attributes_of<ops::Take>().axis.value);
}

VjpTensor index_add_source_vjp(const VjpArgs& args, unsigned) {
  return take(args.g, args.x[1], args.attributes_of<ops::IndexAdd>().axis.value);
}

using Axes = std::vector<std::int64_t>;

void append_range(Axes& axes, std::int64_t first, std::int64_t last) {
  for (std::int64_t i = first; i < last; ++i) axes.push_back(i);
}
Axes inverse(const Axes& axes) {
  Axes back(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) back[static_cast<std::size_t>(axes[i])] = static_cast<std::int64_t>(i);
  return back;
}

/// [batch, before .., axis, after ..] as [batch * axis, before .., after ..]: rows of all batch elements in one list.
struct RowsOfAll {
  RowsOfAll(const VjpTensor& x, std::int64_t axis) : order{0, axis + 1} {
    const Shape sizes = x.shape();
    append_range(order, 1, axis + 1), append_range(order, axis + 2, sizes.rank());
    for (const std::int64_t a : order) moved.push_back(sizes[static_cast<std::size_t>(a)]);
    Shape flat{moved[0] * moved[1]};
    for (std::size_t i = 2; i < moved.rank(); ++i) flat.push_back(moved[i]);
    rows = vjp::reshape(vjp::permute(x, order), flat);
  }
  /// The inverse.
  VjpTensor restore(const VjpTensor& changed) const {
    return vjp::permute(vjp::reshape(changed, moved), inverse(order));
  }

  Axes order;
  Shape moved;
  VjpTensor rows;
};

/// Positions along an axis of each batch element, as positions in RowsOfAll. One that is out of range stays so, lest it
/// name a row of a neighbor.
VjpTensor positions_in_all(const VjpTensor& index, std::int64_t batch, std::int64_t size) {
  const VjpTensor wide = vjp::cast(index, DType::i64);
  const VjpTensor wrapped =
      info(index.dtype()).kind == DTypeKind::unsigned_integer ? wide : vjp::where(wide < 0, wide + size, wide);
  const VjpTensor valid = vjp::logical_and(wrapped >= 0, wrapped < size);
  Shape per_batch{batch};
  while (per_batch.rank() < index.shape().rank()) per_batch.push_back(1);
  return vjp::where(valid, wrapped + vjp::iota(per_batch, 0, index) * size, batch * size);
}

Tensor batched_take(const BatchedCall& call) {
  const BatchedOperand &x = call.operands[0], &index = call.operands[1];
  const std::int64_t axis = attributes_of<ops::Take>(call.attributes).axis.value;
  if (!index.batched) return vjp::take(x.value, index.value, axis + 1).tensor();
  const std::int64_t positions = call.shape(1).rank(), rank = call.type.shape.rank() + 1;
  Axes order;  // of the result's axes in what is taken
  if (!x.batched) {
    order.push_back(axis), append_range(order, 0, axis), append_range(order, axis + 1, rank);
    return vjp::permute(vjp::take(x.value, index.value, axis), order).tensor();
  }
  const RowsOfAll all(x.value, axis);
  const VjpTensor at = positions_in_all(index.value, call.size, call.shape(0)[static_cast<std::size_t>(axis)]);
  order.push_back(0), append_range(order, 1 + positions, 1 + positions + axis);
  append_range(order, 1, 1 + positions), append_range(order, 1 + positions + axis, rank);
  return vjp::permute(vjp::take(all.rows, at, 0), order).tensor();
}

Tensor batched_index_add(const BatchedCall& call) {
  const Tensor x = call.with_batch(0), source = call.with_batch(2);
  const std::int64_t axis = attributes_of<ops::IndexAdd>(call.attributes).axis.value;
  if (!call.operands[1].batched) return vjp::index_add(x, call.operands[1].value, source, axis + 1).tensor();
  const std::int64_t positions = call.shape(1).rank(), rank = source.rank();
  const RowsOfAll all(x, axis);
  const VjpTensor at =
      positions_in_all(call.operands[1].value, call.size, call.shape(0)[static_cast<std::size_t>(axis)]);
  Axes order{0};
  append_range(order, 1 + axis, 1 + axis + positions), append_range(order, 1, 1 + axis);
  append_range(order, 1 + axis + positions, rank);
  return all.restore(vjp::index_add(all.rows, at, vjp::permute(source, order), 0)).tensor();
}

}  // namespace

FERMATA_OP_RULES(take, batched_take, gradient(take_vjp, kSecond), kZeroGradient);
FERMATA_OP_RULES(index_add, batched_index_add, kSameGradient, kZeroGradient, gradient(index_add_source_vjp, kSecond));

}  // namespace vjp

}  // namespace fermata

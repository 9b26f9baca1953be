// Batching rules of the ops that address elements by position, and of matmul. See batched_rules.h.
#include <array>
#include <vector>

#include "frontend/transforms/autograd/autograd_located.h"
#include "frontend/transforms/vmap/batched_rules.h"

namespace fermata {
namespace {

using vjp::Located;
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
  RowsOfAll(const Located& x, std::int64_t axis) : order{0, axis + 1} {
    const Shape sizes = x.shape();
    append_range(order, 1, axis + 1), append_range(order, axis + 2, sizes.rank());
    for (const std::int64_t a : order) moved.push_back(sizes[static_cast<std::size_t>(a)]);
    Shape flat{moved[0] * moved[1]};
    for (std::size_t i = 2; i < moved.rank(); ++i) flat.push_back(moved[i]);
    rows = vjp::reshape(vjp::permute(x, order), flat);
  }
  /// The inverse.
  Located restore(const Located& changed) const { return vjp::permute(vjp::reshape(changed, moved), inverse(order)); }

  Axes order;
  Shape moved;
  Located rows;
};

/// Positions along an axis of each batch element, as positions in RowsOfAll. One that is out of range stays so, lest it
/// name a row of a neighbor.
Located positions_in_all(const Located& index, std::int64_t batch, std::int64_t size) {
  const Located wide = vjp::cast(index, DType::i64);
  const Located wrapped =
      info(index.dtype()).kind == DTypeKind::unsigned_integer ? wide : vjp::where(wide < 0, wide + size, wide);
  const Located valid = vjp::logical_and(wrapped >= 0, wrapped < size);
  Shape per_batch{batch};
  while (per_batch.rank() < index.shape().rank()) per_batch.push_back(1);
  return vjp::where(valid, wrapped + vjp::iota(per_batch, 0, index) * size, batch * size);
}

/// The rank of operand k as a matrix or a stack of them.
unsigned matrix_rank(const BatchedCall& call, std::size_t k) { return std::max(call.shape(k).rank(), 2u); }

/// Operand k as matrices, of at least `rank` axes where it has a batch, which then comes before all of them.
Located matrices(const BatchedCall& call, std::size_t k, unsigned rank) {
  const BatchedOperand& operand = call.operands[k];
  const unsigned first = operand.batched ? 1 : 0;
  Located x = operand.value;
  if (call.shape(k).rank() == 1) x = vjp::expand_dims(x, static_cast<std::uint16_t>(1u << (first + k)));
  const unsigned missing = operand.batched ? rank - matrix_rank(call, k) : 0;
  return vjp::expand_dims(x, static_cast<std::uint16_t>(((1u << missing) - 1u) << 1));
}

Located multiplied(Op op, const Located& lhs, const Located& rhs) {
  return vjp::call(op, std::array{lhs.tensor(), rhs.tensor()}, {});
}

/// One matrix for the whole batch on the right: the rows of all batch elements are one matrix.
Located rows_times_matrix(Op op, const Located& lhs, const Located& rhs) {
  Shape sizes = lhs.shape();
  const std::int64_t k = sizes.back(), n = rhs.shape().back();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < sizes.rank(); ++i) rows *= sizes[i];
  sizes[sizes.rank() - 1] = n;
  return vjp::reshape(multiplied(op, vjp::reshape(lhs, {rows, k}), rhs), sizes);
}

}  // namespace

Tensor batched_take(const BatchedCall& call) {
  const BatchedOperand &x = call.operands[0], &index = call.operands[1];
  const std::int64_t axis = call.attributes.integers[0];
  if (!index.batched) return vjp::take(x.value, index.value, axis + 1).tensor();
  const std::int64_t positions = call.shape(1).rank(), rank = call.type.shape.rank() + 1;
  Axes order;  // of the result's axes in what is taken
  if (!x.batched) {
    order.push_back(axis), append_range(order, 0, axis), append_range(order, axis + 1, rank);
    return vjp::permute(vjp::take(x.value, index.value, axis), order).tensor();
  }
  const RowsOfAll all(x.value, axis);
  const Located at = positions_in_all(index.value, call.size, call.shape(0)[static_cast<std::size_t>(axis)]);
  order.push_back(0), append_range(order, 1 + positions, 1 + positions + axis);
  append_range(order, 1, 1 + positions), append_range(order, 1 + positions + axis, rank);
  return vjp::permute(vjp::take(all.rows, at, 0), order).tensor();
}

Tensor batched_index_add(const BatchedCall& call) {
  const Tensor x = call.with_batch(0), source = call.with_batch(2);
  const std::int64_t axis = call.attributes.integers[0];
  if (!call.operands[1].batched) return vjp::index_add(x, call.operands[1].value, source, axis + 1).tensor();
  const std::int64_t positions = call.shape(1).rank(), rank = source.rank();
  const RowsOfAll all(x, axis);
  const Located at = positions_in_all(call.operands[1].value, call.size, call.shape(0)[static_cast<std::size_t>(axis)]);
  Axes order{0};
  append_range(order, 1 + axis, 1 + axis + positions), append_range(order, 1, 1 + axis);
  append_range(order, 1 + axis + positions, rank);
  return all.restore(vjp::index_add(all.rows, at, vjp::permute(source, order), 0)).tensor();
}

Tensor batched_update(const BatchedCall& call) {
  const std::span<const std::int64_t> given = call.attributes.integers;
  Axes attributes(given.begin(), given.end());
  attributes.insert(attributes.begin() + 1, element_count(call.shape(0)));
  const std::array operands{call.with_batch(0), call.with_batch(1)};
  return vjp::call(Op::update, operands, attributes).tensor();
}

Tensor batched_matmul(const BatchedCall& call) {
  const unsigned rank = std::max(matrix_rank(call, 0), matrix_rank(call, 1));
  const bool left = call.operands[0].batched, right = call.operands[1].batched;
  const Located lhs = matrices(call, 0, rank), rhs = matrices(call, 1, rank);
  Located product;
  if (!right && rhs.shape().rank() == 2) {
    product = rows_times_matrix(call.op, lhs, rhs);
  } else if (!left && lhs.shape().rank() == 2 && rhs.shape().back() == 1) {
    // A matrix times a vector for each batch element: the vectors are the rows of one matrix.
    product = vjp::transpose(rows_times_matrix(call.op, vjp::transpose(rhs), vjp::transpose(lhs)));
  } else {
    product = multiplied(call.op, lhs, rhs);
  }
  return vjp::reshape(product, call.whole().shape).tensor();
}

}  // namespace fermata

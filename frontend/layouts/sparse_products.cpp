// Products of sparse matrices with dense ones.
#include "fermata/creation.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/layouts/sparse_tensor.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"

namespace fermata {
namespace {

/// Row offsets and columns, and the values in their order.
struct Rows {
  Tensor pattern, values;
};

Rows rows_of(const SparsePayload& x, Location where) {
  if (x.is_csr()) return {x.pattern, x.values};  // the kernel takes columns in any order, and more than once
  const auto structure = structure_of(x, "the rows of a sparse matrix", where);
  const std::lock_guard lock(x.working);
  if (!x.as_pattern.defined()) x.as_pattern = pattern_of(*structure, x.sizes, where);
  return {x.as_pattern, ordered_values(x, *structure, where)};
}

/// Without an order of the positions: rows of the dense matrix are gathered, scaled and added. For a function that is
/// being captured, in which indices cannot be read.
Tensor gathered_product(const SparsePayload& x, bool transposed, const Tensor& dense, Location where) {
  const Tensor rows = select(x.indices, 0, transposed ? 1 : 0, where),
               from = select(x.indices, 0, transposed ? 0 : 1, where);
  const Tensor scaled = multiply({take(dense, from, 0, where), where}, expand_dims(x.values, 1, where));
  const Tensor nothing = zeros({x.sizes[transposed ? 1 : 0], dense.size(1)}, dense.dtype(), where);
  return index_add(nothing, rows, scaled, 0, where);
}

}  // namespace

Tensor sparse_matmul(const SparsePayload& x, bool transposed, const Tensor& dense, Location where) {
  const DType dtype = dense.dtype(), computed = compute_dtype(dtype);
  const Tensor matrix = astype(dense, computed, where);
  if (!x.is_csr() && !can_be_read(x)) {
    Tensor product = gathered_product(x, transposed, matrix, where);
    return astype(product, dtype, where);
  }
  const Rows rows = rows_of(x, where);
  const Tensor operands[] = {rows.pattern, astype(rows.values, computed, where), matrix};
  const Tensor product =
      general_call<Op::csr_matmul>({.columns = {x.sizes[1]}, .transposed = {transposed}}, operands, where);
  return astype(product, dtype, where);
}

// Gradients and batching rules.
namespace vjp {
namespace {

/// Of a sparse product with respect to its values: one product of two rows for every entry.
VjpTensor csr_values_vjp(const VjpArgs& args, unsigned) {
  const bool transposed = args.attributes_of<ops::CsrMatmul>().transposed.value;
  const Tensor tensors[] = {args.x[0].tensor(), transposed ? args.x[2].tensor() : args.g.tensor(),
                            transposed ? args.g.tensor() : args.x[2].tensor()};
  return call<Op::csr_sampled_matmul>({}, tensors);
}
VjpTensor csr_product(const VjpTensor& pattern, const VjpTensor& values, const VjpTensor& dense, std::int64_t columns,
                      bool transposed) {
  const Tensor tensors[] = {pattern.tensor(), values.tensor(), dense.tensor()};
  return call<Op::csr_matmul>({.columns = {columns}, .transposed = {transposed}}, tensors);
}
VjpTensor csr_dense_vjp(const VjpArgs& args, unsigned) {
  const auto [columns, transposed] = args.attributes_of<ops::CsrMatmul>();
  return csr_product(args.x[0], args.x[1], args.g, columns.value, !transposed.value);
}
VjpTensor csr_sampled_lhs_vjp(const VjpArgs& args, unsigned) {
  return csr_product(args.x[0], args.g, args.x[2], args.shape(2)[0], false);
}
VjpTensor csr_sampled_rhs_vjp(const VjpArgs& args, unsigned) {
  return csr_product(args.x[0], args.g, args.x[1], args.shape(2)[0], true);
}

/// A batch of patterns as one: matrices below each other that keep their columns, or with columns of their own.
struct Stacked {
  Tensor pattern;
  std::int64_t rows, entries;  // of one
};
Stacked stacked(const BatchedCall& call, std::int64_t entries, std::int64_t own_columns) {
  const VjpTensor patterns = call.with_batch(0);
  const std::int64_t rows = patterns.shape()[1] - 1 - entries;
  const VjpTensor number = iota({call.size, 1}, 0, patterns);
  const VjpTensor offsets = VjpTensor(fermata::slice(patterns.tensor(), 1, 0, rows)) + number * entries;
  const VjpTensor columns = VjpTensor(fermata::slice(patterns.tensor(), 1, rows + 1)) + number * own_columns;
  const Tensor end = full(static_cast<double>(call.size * entries), {DType::i64, Shape{1}}, patterns).tensor();
  return {fermata::concat({fermata::reshape(offsets.tensor(), {-1}), end, fermata::reshape(columns.tensor(), {-1})}, 0),
          rows, entries};
}
Tensor rows_together(const Tensor& x) { return fermata::reshape(x, {x.size(0) * x.size(1), x.size(2)}); }

/// Of one sparse matrix with many dense ones: a product with all their columns. Of many: with all their rows.
Tensor batched_csr_matmul(const BatchedCall& call) {
  const auto [columns, transposed] = attributes_of<ops::CsrMatmul>(call.attributes);
  const std::int64_t width = call.shape(2)[1];
  if (!call.operands[0].batched && !call.operands[1].batched) {
    const Tensor side = fermata::reshape(fermata::transpose(call.with_batch(2), 0, 1), {call.shape(2)[0], -1});
    const VjpTensor product =
        csr_product(call.operands[0].value, call.operands[1].value, side, columns.value, transposed.value);
    return fermata::transpose(fermata::reshape(product.tensor(), {product.shape()[0], call.size, width}), 0, 1);
  }
  const bool shares = !call.operands[2].batched && !transposed.value;
  const Stacked all = stacked(call, call.shape(1)[0], shares ? 0 : columns.value);
  const Tensor values = fermata::reshape(call.with_batch(1), {-1});
  const Tensor dense = shares ? call.operands[2].value : rows_together(call.with_batch(2));
  const VjpTensor product =
      csr_product(all.pattern, values, dense, shares ? columns.value : call.size * columns.value, transposed.value);
  return fermata::reshape(product.tensor(), {call.size, transposed.value ? columns.value : all.rows, width});
}
Tensor batched_csr_sampled_matmul(const BatchedCall& call) {
  const std::int64_t entries = call.shape(0)[0] - call.shape(1)[0] - 1;
  const Stacked all = stacked(call, entries, call.shape(2)[0]);
  const Tensor tensors[] = {all.pattern, rows_together(call.with_batch(1)), rows_together(call.with_batch(2))};
  return fermata::reshape(vjp::call<Op::csr_sampled_matmul>({}, tensors).tensor(), {call.size, entries});
}

}  // namespace

FERMATA_OP_RULES(csr_matmul, batched_csr_matmul, kZeroGradient, gradient(csr_values_vjp, kFirst | kThird),
                 gradient(csr_dense_vjp, kFirst | kSecond));
FERMATA_OP_RULES(csr_sampled_matmul, batched_csr_sampled_matmul, kZeroGradient,
                 gradient(csr_sampled_lhs_vjp, kFirst | kThird), gradient(csr_sampled_rhs_vjp, kFirst | kSecond));

}  // namespace vjp

}  // namespace fermata

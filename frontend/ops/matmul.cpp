// matmul and dot, and the products of bytes that quantized matrices are multiplied with. See fermata/ops.h.
#include <algorithm>
#include <array>
#include <vector>

#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "frontend/transforms/autocast/autocast.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {

namespace {

/// Autocast makes the operands of a matrix product equal itself: a narrow one should not be widened first.
bool narrows(const Tensor& x) {
  return x.defined() && x.rank() >= 2 && is_floating(x.dtype()) && x.dtype() != DType::f64;
}

}  // namespace

Tensor matmul(const Tensor& lhs, const Tensor& rhs, Location where) {
  if (lhs.defined() && rhs.defined() && (is_small(lhs.dtype()) || is_small(rhs.dtype())))
    return matmul(astype(lhs, arithmetic_dtype(lhs.dtype()), where), astype(rhs, arithmetic_dtype(rhs.dtype()), where),
                  where);
  if (lhs.defined() && rhs.defined() && lhs.dtype() == rhs.dtype() && lhs.rank() >= 2 && rhs.rank() >= 2) [[likely]]
    return general_call(Op::matmul, BorrowedTensors(lhs, rhs), {}, where);
  const Tensor given[] = {lhs, rhs};
  std::vector<Tensor> operands = autocast_enabled() && narrows(lhs) && narrows(rhs)
                                     ? std::vector(std::begin(given), std::end(given))
                                     : promoted(Op::matmul, given, where);
  // Kernels see matrices: a vector gets its missing axis, which goes again. Errors speak of what the caller gave.
  const bool row = lhs.rank() == 1, column = rhs.rank() == 1;
  // Those of wrapper tensors come from their kernels, which know what they are made of.
  const bool compound = ((lhs.keys() | rhs.keys()) & kCompoundKeys).bits != 0;
  if ((row || column) && !compound)
    infer(Op::matmul, std::vector{type_of(operands[0]), type_of(operands[1])}, {}, {}, where);
  if (row) operands[0] = expand_dims(operands[0], 0, where);
  if (column) operands[1] = expand_dims(operands[1], 1, where);
  const Tensor product = general_call(Op::matmul, operands, {}, where);
  if (row && column) return squeeze(product, {-2, -1}, where);
  return row ? squeeze(product, -2, where) : column ? squeeze(product, -1, where) : product;
}

Tensor dot(const Tensor& lhs, const Tensor& rhs, Location where) {
  require_defined(Op::matmul, {lhs, where}), require_defined(Op::matmul, {rhs, where});
  if (lhs.rank() != 1 || rhs.rank() != 1)
    throw ShapeError(1015, format_error(1015, "ShapeError", "dot: a vector must have one axis", describe(lhs, rhs),
                                        where, "use matmul for matrices"));
  return matmul(lhs, rhs, where);
}

// Gradients and batching rules.
namespace vjp {
namespace {

/// The gradient of a product as one of matrices: vectors get the axis that matmul gives them.
VjpTensor product_gradient(const VjpArgs& args) {
  const unsigned rank = args.g.shape().rank();
  VjpTensor g = args.g;
  if (args.shape(1).rank() == 1) g = expand_dims(g, static_cast<std::uint16_t>(1u << rank));
  if (args.shape(0).rank() == 1) {
    const unsigned row = g.shape().rank() - 1;
    g = expand_dims(g, static_cast<std::uint16_t>(1u << row));
  }
  return g;
}

Shape matrix_shape(const Shape& sizes, bool is_lhs) {
  if (sizes.rank() > 1) return sizes;
  return is_lhs ? Shape{1, sizes[0]} : Shape{sizes[0], 1};
}

/// All axes but the last in one.
VjpTensor flatten_rows(const VjpTensor& x) {
  const Shape sizes = x.shape();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < sizes.rank(); ++i) rows *= sizes[i];
  return reshape(x, {rows, sizes.back()});
}

VjpTensor matmul_lhs_vjp(const VjpArgs& args, unsigned) {
  const Shape lhs = matrix_shape(args.shape(0), true);
  const VjpTensor rhs = reshape(args.x[1], matrix_shape(args.shape(1), false));
  return reshape(sum_to(matmul(product_gradient(args), transpose(rhs)), lhs), args.shape(0));
}

VjpTensor matmul_rhs_vjp(const VjpArgs& args, unsigned) {
  Shape rhs = matrix_shape(args.shape(1), false);
  VjpTensor lhs = reshape(args.x[0], matrix_shape(args.shape(0), true));
  VjpTensor g = product_gradient(args);
  // One matrix for a whole batch: the sum over the batch is part of one larger product.
  if (rhs.rank() == 2 && lhs.shape().rank() > 2) lhs = flatten_rows(lhs), g = flatten_rows(g);
  if (!args.node.operands()[1].is_turned) return reshape(sum_to(matmul(transpose(lhs), g), rhs), args.shape(1));
  // The gradient lies as the operand does: where that is a transposed weight, it is dense in the order of the weight.
  std::swap(rhs[rhs.rank() - 1], rhs[rhs.rank() - 2]);
  return transpose(sum_to(matmul(transpose(g), lhs), rhs));
}

/// matmul_f32: the gradient is wider than the operands, and meets them as f32.
VjpArgs with_wide(const VjpArgs& args, std::size_t k) {
  VjpArgs wide = args;
  wide.x[k] = cast(args.x[k], DType::f32);
  return wide;
}
VjpTensor matmul_f32_lhs_vjp(const VjpArgs& args, unsigned k) { return matmul_lhs_vjp(with_wide(args, 1), k); }
VjpTensor matmul_f32_rhs_vjp(const VjpArgs& args, unsigned k) { return matmul_rhs_vjp(with_wide(args, 0), k); }

/// The rank of operand k as a matrix or a stack of them.
unsigned matrix_rank(const BatchedCall& call, std::size_t k) { return std::max(call.shape(k).rank(), 2u); }

/// Operand k as matrices, of at least `rank` axes where it has a batch, which then comes before all of them.
VjpTensor matrices(const BatchedCall& call, std::size_t k, unsigned rank) {
  const BatchedOperand& operand = call.operands[k];
  const unsigned first = operand.batched ? 1 : 0;
  VjpTensor x = operand.value;
  if (call.shape(k).rank() == 1) x = vjp::expand_dims(x, static_cast<std::uint16_t>(1u << (first + k)));
  const unsigned missing = operand.batched ? rank - matrix_rank(call, k) : 0;
  return vjp::expand_dims(x, static_cast<std::uint16_t>(((1u << missing) - 1u) << 1));
}

VjpTensor multiplied(Op op, const VjpTensor& lhs, const VjpTensor& rhs) {
  return vjp::call(op, std::array{lhs.tensor(), rhs.tensor()}, {});
}

/// One matrix for the whole batch on the right: the rows of all batch elements are one matrix.
VjpTensor rows_times_matrix(Op op, const VjpTensor& lhs, const VjpTensor& rhs) {
  Shape sizes = lhs.shape();
  const std::int64_t k = sizes.back(), n = rhs.shape().back();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < sizes.rank(); ++i) rows *= sizes[i];
  sizes[sizes.rank() - 1] = n;
  return vjp::reshape(multiplied(op, vjp::reshape(lhs, {rows, k}), rhs), sizes);
}

Tensor batched_matmul(const BatchedCall& call) {
  const unsigned rank = std::max(matrix_rank(call, 0), matrix_rank(call, 1));
  const bool left = call.operands[0].batched, right = call.operands[1].batched;
  const VjpTensor lhs = matrices(call, 0, rank), rhs = matrices(call, 1, rank);
  VjpTensor product;
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

/// Of rows; packed weights have no gradient.
VjpTensor matmul_weights_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t columns = args.attributes_of<ops::MatmulWeights>().columns.value;
  const VjpTensor matrix = unpacked(args.x[1], *PackedWeights::of(args.shape(1), columns, args.shape(0).back()));
  return matmul(args.g, cast(matrix, args.g.dtype()));
}

/// [batch, K, N] of a batch of packed matrices.
Tensor unpacked_batch(const BatchedCall& call, std::int64_t depth, std::int64_t columns) {
  const Location line = current_line;
  const Tensor& packed = call.operands[1].value;
  const Shape each = call.shape(1);
  Tensor matrices;
  if (call.op == Op::matmul_weights) {
    const PackedWeights form = *PackedWeights::of(each, columns, depth);
    const std::int64_t rows = form.blocks() * PackedWeights::kBlock;
    const PackedWeights all{call.size * rows, depth, form.group};
    const Tensor flat = unpacked_weights(fermata::reshape(packed, all.shape(), line), all, line);
    matrices = fermata::transpose(fermata::reshape(flat, {call.size, rows, depth}, line), 1, 2, line);
    matrices = astype(matrices, call.type.dtype, line);
  } else {  // blocks [N/64, K/4, 64, 4]
    const Tensor turned = fermata::permute(packed, {0, 2, 4, 1, 3}, line);
    matrices = fermata::reshape(turned, {call.size, each[1] * 4, each[0] * 64}, line);
  }
  return slice(slice(matrices, 1, 0, depth, 1, line), 2, 0, columns, 1, line);
}

/// The rows of a whole batch meet one matrix, or those of each element their own.
Tensor batched_matmul_packed(const BatchedCall& call) {
  const BatchedOperand &x = call.operands[0], &packed = call.operands[1];
  if (!packed.batched) return vjp::call(call.op, std::array{x.value, packed.value}, call.attributes.integers).tensor();
  const Shape sizes = call.shape(0);
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < sizes.rank(); ++i) rows *= sizes[i];
  const Tensor matrices = unpacked_batch(call, sizes.back(), call.type.shape.back());
  const VjpTensor left = vjp::reshape(x.value, {x.batched ? call.size : 1, rows, sizes.back()});
  const Op product = call.op == Op::matmul_weights ? Op::matmul : Op::matmul_i32;
  return vjp::reshape(multiplied(product, left, matrices), call.whole().shape).tensor();
}

}  // namespace

FERMATA_OP_RULES(matmul, batched_matmul, gradient(matmul_lhs_vjp, kSecond), gradient(matmul_rhs_vjp, kFirst));
FERMATA_OP_RULES(matmul_f32, batched_matmul, gradient(matmul_f32_lhs_vjp, kSecond),
                 gradient(matmul_f32_rhs_vjp, kFirst));
FERMATA_OP_RULES(matmul_i32, batched_matmul, kNoGradient, kNoGradient);
FERMATA_OP_RULES(matmul_packed, batched_matmul_packed, kNoGradient, kNoGradient);
FERMATA_OP_RULES(matmul_weights, batched_matmul_packed, gradient(matmul_weights_vjp, kSecond), kNoGradient);

}  // namespace vjp

}  // namespace fermata

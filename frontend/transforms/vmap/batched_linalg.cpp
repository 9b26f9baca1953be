// Batching rules of linear algebra and of Fourier transforms: the batch is one more axis in front of a stack of
// matrices, or of lines. See batched_rules.h.
#include <algorithm>
#include <array>
#include <vector>

#include "frontend/transforms/autograd/autograd_located.h"
#include "frontend/transforms/vmap/batched_rules.h"

namespace fermata {
namespace {

Tensor run(const BatchedCall& call, std::span<const Tensor> operands, std::span<const std::int64_t> attributes) {
  return vjp::call(call.op, operands, attributes).tensor();
}

Tensor batched_matrices(const BatchedCall& call) {
  return run(call, {&call.operands[0].value, 1}, call.attributes.integers);
}

/// Both operands with the batch.
Tensor batched_pairs(const BatchedCall& call) {
  return run(call, std::array{call.with_batch(0), call.with_batch(1)}, call.attributes.integers);
}

/// The batch comes before the batch axes of either operand, of which one may have fewer.
Tensor batched_systems(const BatchedCall& call) {
  const unsigned rank = std::max(call.shape(0).rank(), call.shape(1).rank());
  std::array<Tensor, 2> operands;
  for (std::size_t k = 0; k < 2; ++k) {
    const unsigned missing = call.operands[k].batched ? rank - call.shape(k).rank() : 0;
    operands[k] =
        vjp::expand_dims(call.operands[k].value, static_cast<std::uint16_t>(((1u << missing) - 1u) << 1)).tensor();
  }
  return run(call, operands, call.attributes.integers);
}

/// Attribute 0 is an axis.
Tensor batched_lines(const BatchedCall& call) {
  std::vector<std::int64_t> attributes(call.attributes.integers.begin(), call.attributes.integers.end());
  ++attributes[0];
  return run(call, {&call.operands[0].value, 1}, attributes);
}

}  // namespace

BatchingRule linalg_batching_rule(Op op) {
  switch (op) {
    case Op::complex:
    case Op::pinv: return batched_pairs;
    case Op::solve:
    case Op::solve_triangular: return batched_systems;
    case Op::fft:
    case Op::rfft:
    case Op::irfft: return batched_lines;
    case Op::cholesky:
    case Op::inv:
    case Op::det:
    case Op::cofactor:
    case Op::slogdet:
    case Op::qr:
    case Op::eigh:
    case Op::eigvalsh:
    case Op::svd:
    case Op::svdvals: return batched_matrices;
    default: return nullptr;
  }
}

}  // namespace fermata

// Batching rules of ir/ops/neural.def. Gathers, scatters and windows have their axis one further back; a batch of
// convolutions is one convolution with more images, more filters, or more groups.
#include <array>
#include <vector>

#include "frontend/transforms/autograd/autograd_located.h"
#include "frontend/transforms/vmap/batched_rules.h"

namespace fermata {
namespace {

using vjp::Located;

/// Attribute 0 is an axis; every operand gets the batch in front.
Tensor batched_axis(const BatchedCall& call) {
  std::vector<std::int64_t> attributes(call.attributes.integers.begin(), call.attributes.integers.end());
  ++attributes[0];
  std::vector<Tensor> operands;
  for (std::size_t k = 0; k < call.operands.size(); ++k) operands.push_back(call.with_batch(k));
  return vjp::call(call.op, operands, attributes, call.whole()).tensor();
}

/// [B, .., n, ..] as [.., B * n, ..], where n is at `axis` of the result.
Located merged(const Located& x, std::int64_t axis) {
  const Shape sizes = x.shape();
  std::vector<std::int64_t> order;
  Shape flat;
  for (std::int64_t i = 1; i < sizes.rank(); ++i) {
    if (i - 1 == axis) order.push_back(0);
    order.push_back(i);
    flat.push_back(sizes[static_cast<std::size_t>(i)] * (i - 1 == axis ? sizes[0] : 1));
  }
  return vjp::reshape(vjp::permute(x, order), flat);
}
/// The inverse.
Located apart(const Located& x, std::int64_t axis, std::int64_t batch) {
  const Shape sizes = x.shape();
  Shape open;
  std::vector<std::int64_t> order{axis};
  for (std::int64_t i = 0; i < sizes.rank(); ++i) {
    const std::int64_t size = sizes[static_cast<std::size_t>(i)];
    if (i == axis)
      open.push_back(batch), open.push_back(size / batch);
    else
      open.push_back(size);
    order.push_back(i < axis ? i : i + 1);
  }
  return vjp::permute(vjp::reshape(x, open), order);
}

/// Groups divide the channels of images and the filters.
constexpr std::int64_t kImages = 0, kChannels = 1, kFilters = 0;

Tensor convolution_with(const BatchedCall& call, std::span<const Located> operands, std::int64_t groups,
                        std::int64_t result_axis) {
  std::vector<std::int64_t> attributes(call.attributes.integers.begin(), call.attributes.integers.end());
  attributes[0] *= groups;
  Shape shape = call.type.shape;
  shape[static_cast<std::size_t>(result_axis)] *= call.size;
  const Located y =
      vjp::call(call.op, std::array{operands[0].tensor(), operands[1].tensor()}, attributes, {call.type.dtype, shape});
  return apart(y, result_axis, call.size).tensor();
}

/// Images of all batch elements side by side where only they differ; else each element has groups of its own.
Tensor batched_convolution(const BatchedCall& call) {
  if (call.size == 0) return vjp::full(0, call.whole(), call.operands[0].value).tensor();
  const bool of_filters = call.op == Op::convolution_weight_gradient;
  if (!call.operands[1].batched && !of_filters) {
    const std::array operands{merged(call.operands[0].value, kImages), Located(call.operands[1].value)};
    return convolution_with(call, operands, 1, kImages);
  }
  const std::int64_t second = of_filters ? kChannels : kFilters, result = of_filters ? kFilters : kChannels;
  const std::array operands{merged(call.with_batch(0), kChannels), merged(call.with_batch(1), second)};
  return convolution_with(call, operands, call.size, result);
}

}  // namespace

BatchingRule neural_rule(Op op) {
  switch (op) {
    case Op::gather:
    case Op::scatter:
    case Op::scatter_add:
    case Op::scatter_multiply:
    case Op::scatter_maximum:
    case Op::scatter_minimum:
    case Op::unfold:
    case Op::fold: return batched_axis;
    case Op::convolution:
    case Op::convolution_data_gradient:
    case Op::convolution_weight_gradient: return batched_convolution;
    default: return nullptr;
  }
}

}  // namespace fermata

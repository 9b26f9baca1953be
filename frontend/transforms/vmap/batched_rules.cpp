// See batched_rules.h: the table, and the rules that ops share.
#include "frontend/transforms/vmap/batched_rules.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <vector>

#include "fermata/device.h"
#include "frontend/ops/op_rules.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/op_traits.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

Shape behind_batch(std::int64_t size, const Shape& shape) {
  Shape all{size};
  for (const std::int64_t s : shape) all.push_back(s);
  return all;
}

/// The attributes of a call, with the axes that they name one to the back.
std::vector<std::int64_t> one_axis_back(const BatchedCall& call) {
  std::vector<std::int64_t> attributes(call.attributes.integers.begin(), call.attributes.integers.end());
  const OpTraits& op = traits(call.op);
  const std::size_t length = attribute_list_length(op, attributes.size()).value_or(0);
  std::size_t at = 0;
  for (const AttributeField& field : op.fields) {
    if (field.kind == AttributeKind::axis) ++attributes[at];
    if (field.kind == AttributeKind::axes) attributes[at] <<= 1;
    at += field.kind == AttributeKind::list ? length : 1;
  }
  return attributes;
}

Tensor batched_reduce(const BatchedCall& call) {
  const Tensor& x = call.operands[0].value;
  const auto axes = attributes_of<ops::Reduction>(call.attributes).axes.value;
  if (info(call.op).rule != DTypeRule::index || std::popcount(axes) == 1) return moved_axes(call, one_axis_back(call));
  // Positions among all elements of a batch element: as one axis.
  const Tensor flat = vjp::reshape(x, {call.size, element_count(call.shape(0))}).tensor();
  return vjp::reshape(vjp::reduce(call.op, flat, 2, false), call.whole().shape).tensor();
}

/// In the order of the enumeration, which is that of the table.
struct Rules {
  std::array<std::atomic<BatchingRule>, kOpCount> of{
#define FERMATA_UNARY(...) nullptr,
#define FERMATA_BINARY(...) nullptr,
#define FERMATA_TERNARY(...) nullptr,
#define FERMATA_REDUCE(...) &batched_reduce,
#define FERMATA_RANDOM(...) nullptr,
#define FERMATA_IRREGULAR(name, ...) vjp::name##_rules.batching,
#define FERMATA_COMPOSITE(...) nullptr,
#include "ir/ops.def"
  };
};
std::atomic<BatchingRule>& rule_of(Op op) {
  static Rules rules;
  return rules.of[static_cast<std::size_t>(op)];
}

}  // namespace

Tensor moved_axes(const BatchedCall& call, std::span<const std::int64_t> attributes) {
  return vjp::call(call.op, {&call.operands[0].value, 1}, attributes, call.whole()).tensor();
}

Tensor batched_by_type(const BatchedCall& call) { return moved_axes(call, {}); }

Tensor batched_in_front(const BatchedCall& call) {
  std::vector<Tensor> operands;
  for (std::size_t k = 0; k < call.operands.size(); ++k) operands.push_back(call.with_batch(k));
  return vjp::call(call.op, operands, one_axis_back(call), call.whole()).tensor();
}

Tensor BatchedCall::with_batch(std::size_t k) const {
  if (operands[k].batched) return operands[k].value;
  Tensor value = operands[k].value;
  // An element of the CPU may meet any device, a batch of it only its own.
  if (const auto other = std::ranges::find_if(operands, [](const auto& o) { return o.batched; });
      value.rank() == 0 && other != operands.end())
    value = to(value, device(other->value));
  return vjp::broadcast_to(value, behind_batch(size, value.shape())).tensor();
}

Shape BatchedCall::shape(std::size_t k) const {
  const Shape all = operands[k].value.shape();
  return operands[k].batched ? Shape(std::span<const std::int64_t>(all).subspan(1)) : all;
}

TensorType BatchedCall::whole() const { return {type.dtype, behind_batch(size, type.shape)}; }

BatchingRule batching_rule(Op op) { return rule_of(op).load(std::memory_order_relaxed); }
BatchingRule set_batching_rule(Op op, BatchingRule rule) { return rule_of(op).exchange(rule); }

Tensor loop_over_batch(const BatchedCall& call) {
  counters.vmap_loops.fetch_add(1, std::memory_order_relaxed);
  if (call.size == 0) return vjp::full(0, call.whole(), call.operands[0].value).tensor();
  std::vector<Tensor> operands(call.operands.size()), results;
  for (std::int64_t i = 0; i < call.size; ++i) {
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const BatchedOperand& operand = call.operands[k];
      operands[k] = operand.value;
      if (!operand.batched) continue;
      Shape starts, steps, counts = operand.value.shape();
      for (unsigned axis = 0; axis < counts.rank(); ++axis) starts.push_back(0), steps.push_back(1);
      starts[0] = i, counts[0] = 1;
      operands[k] = vjp::squeeze(vjp::slice(operand.value, starts, steps, counts), 1).tensor();
    }
    const Tensor one =
        Dispatcher<GeneralCall>::call(operator_entry(call.op), vjp::current_line, operands, call.attributes);
    results.push_back(vjp::expand_dims(one, 1).tensor());
  }
  return vjp::call<Op::concat>({.axis = {0}}, results).tensor();
}

}  // namespace fermata

// See batched_rules.h: the table, and the rules that only move axes.
#include "frontend/transforms/vmap/batched_rules.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <vector>

#include "fermata/device.h"
#include "frontend/transforms/autograd/autograd_located.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

Shape behind_batch(std::int64_t size, const Shape& shape) {
  Shape all{size};
  for (const std::int64_t s : shape) all.push_back(s);
  return all;
}

/// The operand as it is, the attributes for axes that have moved one to the back.
Tensor moved_axes(const BatchedCall& call, std::span<const std::int64_t> attributes) {
  return vjp::call(call.op, {&call.operands[0].value, 1}, attributes, call.whole()).tensor();
}

Tensor batched_reduce(const BatchedCall& call) {
  const Tensor& x = call.operands[0].value;
  const std::int64_t mask = call.attributes.integers[0];
  if (info(call.op).rule != DTypeRule::index || std::popcount(static_cast<std::uint64_t>(mask)) == 1)
    return moved_axes(call, std::array{mask << 1, call.attributes.integers[1]});
  // Positions among all elements of a batch element: as one axis.
  const Tensor flat = vjp::reshape(x, {call.size, element_count(call.shape(0))}).tensor();
  return vjp::reshape(vjp::reduce(call.op, flat, 2, false), call.whole().shape).tensor();
}

/// cast, copy and reshape: what they need to know is the result's type.
Tensor batched_by_type(const BatchedCall& call) { return moved_axes(call, {}); }

/// expand_dims and squeeze: a bit mask of axes.
Tensor batched_mask(const BatchedCall& call) { return moved_axes(call, std::array{call.attributes.integers[0] << 1}); }

Tensor batched_permute(const BatchedCall& call) {
  std::vector<std::int64_t> axes{0};
  for (const std::int64_t axis : call.attributes.integers) axes.push_back(axis + 1);
  return moved_axes(call, axes);
}

Tensor batched_slice(const BatchedCall& call) {
  const std::span<const std::int64_t> given = call.attributes.integers;
  std::vector<std::int64_t> starts_and_steps(given.begin(), given.end());
  starts_and_steps.insert(starts_and_steps.begin() + static_cast<std::ptrdiff_t>(given.size() / 2), 1);
  starts_and_steps.insert(starts_and_steps.begin(), 0);
  return moved_axes(call, starts_and_steps);
}

Tensor batched_broadcast_to(const BatchedCall& call) {
  const unsigned missing = call.type.shape.rank() - call.shape(0).rank();
  const auto added = static_cast<std::uint16_t>(((1u << missing) - 1u) << 1);
  return vjp::broadcast_to(vjp::expand_dims(call.operands[0].value, added), call.whole().shape).tensor();
}

Tensor batched_concat(const BatchedCall& call) {
  std::vector<Tensor> parts;
  for (std::size_t k = 0; k < call.operands.size(); ++k) parts.push_back(call.with_batch(k));
  const std::array axis{call.attributes.integers[0] + 1};
  return vjp::call(Op::concat, parts, axis).tensor();
}

/// An axis as the first attribute, one further to the back.
Tensor batched_along_axis(const BatchedCall& call) {
  std::vector<std::int64_t> attributes(call.attributes.integers.begin(), call.attributes.integers.end());
  ++attributes[0];
  return moved_axes(call, attributes);
}

/// One sorted vector and many values to look up is the op itself. Where each has a vector of its own, positions are
/// counts of the elements that come before: one fused reduction. NaN is above all numbers.
Tensor batched_searchsorted(const BatchedCall& call) {
  using namespace vjp;
  const bool right = call.attributes.integers[0] != 0;
  if (!call.operands[0].batched) {
    const std::array operands{call.operands[0].value, call.operands[1].value};
    return vjp::call(call.op, operands, call.attributes.integers).tensor();
  }
  const Located wanted = expand_dims(call.with_batch(1), 2);
  Shape column{call.size, call.shape(0)[0]};
  while (column.rank() < wanted.shape().rank()) column.push_back(1);
  const Located sorted = reshape(call.operands[0].value, column);
  const auto is_less = [](const Located& a, const Located& b) {
    return logical_or(a < b, logical_and(isnan(b), logical_not(isnan(a))));
  };
  return reduce(Op::sum, right ? logical_not(is_less(wanted, sorted)) : is_less(sorted, wanted), 2, false).tensor();
}

/// The second operand is only waited for.
Tensor batched_after(const BatchedCall& call) {
  const Tensor operands[] = {call.with_batch(0), call.operands[1].value};
  return vjp::call(Op::after, operands, {}).tensor();
}

BatchingRule irregular_rule(Op op) {
  switch (op) {
#define FERMATA_SCAN(name, monoid, rule, doc) case Op::name:
#include "ir/ops.def"
    case Op::sort:
    case Op::argsort:
    case Op::top_k_indices: return batched_along_axis;
    case Op::searchsorted: return batched_searchsorted;
    case Op::cast:
    case Op::copy:
    case Op::reshape: return batched_by_type;
    case Op::expand_dims:
    case Op::squeeze: return batched_mask;
    case Op::permute: return batched_permute;
    case Op::slice: return batched_slice;
    case Op::broadcast_to: return batched_broadcast_to;
    case Op::concat: return batched_concat;
    case Op::take: return batched_take;
    case Op::index_add: return batched_index_add;
    case Op::update: return batched_update;
    case Op::after: return batched_after;
    case Op::matmul:
    case Op::matmul_i32: return batched_matmul;
    default: {
      const BatchingRule rule = neural_rule(op);
      return rule != nullptr ? rule : linalg_batching_rule(op);
    }
  }
}

struct Rules {
  std::array<std::atomic<BatchingRule>, kOpCount> of{};
  Rules() {
    for (std::size_t i = 0; i < kOpCount; ++i) {
      const Op op = static_cast<Op>(i);
      of[i] = family(op) == Family::reduce ? batched_reduce : irregular_rule(op);
    }
  }
};
std::atomic<BatchingRule>& rule_of(Op op) {
  static Rules rules;
  return rules.of[static_cast<std::size_t>(op)];
}

}  // namespace

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
  const std::array<std::int64_t, 1> axis{0};
  return vjp::call(Op::concat, results, axis).tensor();
}

}  // namespace fermata

// The kernels of the Batched key: one per signature, like those of Capture and Autograd.
//
// A call runs at the innermost level of its operands. Where one of them has a gradient history at that level, the keys
// below come first, once, with the wrappers as they are; the Autograd kernel hands the call back without its key. Then
// the operands are unwrapped and the op's rule makes the call below the level, with the levels above popped.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "dispatch/kernel_table.h"
#include "dispatch/pointwise.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "frontend/transforms/vmap/batched.h"
#include "frontend/transforms/vmap/batched_rules.h"
#include "ir/error.h"

namespace fermata {
namespace {

bool has_history_at(const Tensor& t, unsigned depth) {
  return t.keys().has(Functionality::autograd) && depth_of(t) == depth;
}
/// Those below this one, for a call that is to be recorded on the tape of its level. A trace is of what happens below.
DispatchKeySet keys_at_gradient(const Call& call) {
  return call.keys.below(Functionality::batched) - DispatchKeySet(Functionality::tracer);
}
unsigned depth_of_operand(const Operand& o) { return o.is_tensor() ? depth_of(o.tensor()) : 0; }
bool operand_has_history_at(const Operand& o, unsigned depth) {
  return o.is_tensor() && has_history_at(o.tensor(), depth);
}

BatchedOperand unwrapped(const Tensor& t, unsigned depth) {
  if (depth_of(t) != depth) return {t, false};
  const BatchedTensor& b = batched_tensor(t);
  return {b.physical, b.batched};
}

/// The frame of the level that a call with this operand runs at.
template <class Tensors> const VmapFrame& frame_of_call(const Tensors& tensors, unsigned depth, Location where) {
  const VmapFrame* frame = nullptr;
  for (const Tensor* t : tensors)
    if (t != nullptr && depth_of(*t) == depth) frame = &frame_of(batched_tensor(*t), where);
  return *frame;
}

/// An operand with as many axes as the result after its batch axis.
Tensor aligned(const BatchedOperand& o, unsigned rank) {
  if (!o.batched) return o.value;
  const unsigned missing = rank + 1 - o.value.rank();
  return vjp::expand_dims(o.value, static_cast<std::uint16_t>(((1u << missing) - 1u) << 1)).tensor();
}

Tensor call_pointwise(const Call& call, std::span<const std::optional<Operand>> operands) {
  switch (operands.size()) {
    case 1: return Dispatcher<UnaryCall>::call(call.entry, call.where, *operands[0]);
    case 2: return Dispatcher<BinaryCall>::call(call.entry, call.where, *operands[0], *operands[1]);
    default: return Dispatcher<TernaryCall>::call(call.entry, call.where, *operands[0], *operands[1], *operands[2]);
  }
}

/// dtypes, and errors, are settled by the shapes that the caller sees: 0-d tensors promote in another way than vectors.
Tensor run_pointwise(const Call& call, PointwiseOperands& p, unsigned depth) {
  std::array<const Tensor*, 3> given{};
  for (unsigned k = 0; k < p.count; ++k)
    if (p.operands[k]->is_tensor()) given[k] = &p.operands[k]->tensor();
  const VmapFrame& frame = frame_of_call(given, depth, call.where);
  promote_and_broadcast(call, p);
  const InsideLevel below(frame.outer);
  const vjp::LineGuard line(call.where);
  std::array<Tensor, 3> values;
  std::array<std::optional<Operand>, 3> operands;
  bool batched = false;
  for (unsigned k = 0; k < p.count; ++k) {
    const Tensor* t = p.held[k].defined() ? &p.held[k] : given[k];
    if (t == nullptr) {
      operands[k].emplace(p.operands[k]->scalar(), call.where);
      continue;
    }
    const BatchedOperand operand = unwrapped(*t, depth);
    batched = batched || operand.batched;
    values[k] = aligned(operand, p.rank);
    operands[k].emplace(values[k], call.where);
  }
  return make_batched(call_pointwise(call, std::span(operands).first(p.count)), frame.level, batched);
}

template <class... Operands> Tensor batched_pointwise(const Call& call, const Operands&... operands) {
  using Table = Dispatcher<Tensor(const Operands&...)>;
  const unsigned depth = std::max({depth_of_operand(operands)...});
  if (depth == 0) return Table::redispatch(call, Functionality::batched, operands...);
  if (call.keys.has(Functionality::autograd) && (operand_has_history_at(operands, depth) || ...))
    return Table::call_with(call.entry, keys_at_gradient(call), call.where, operands...);
  PointwiseOperands p(operands...);
  return run_pointwise(call, p, depth);
}

Tensor batched_unary(const Call& call, const Operand& a) { return batched_pointwise(call, a); }
Tensor batched_binary(const Call& call, const Operand& a, const Operand& b) { return batched_pointwise(call, a, b); }
Tensor batched_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  return batched_pointwise(call, a, b, c);
}

/// Numbers for every element of the batch: one draw of all of them.
Tensor draw(const Call& call, const Attributes& attributes) {
  const VmapFrame& frame = *vmap_frame;
  Attributes all = attributes;
  all.wanted.shape = Shape{frame.level.size};
  for (const std::int64_t size : attributes.wanted.shape) all.wanted.shape.push_back(size);
  check_shape(call.entry.name, all.wanted.shape, all.wanted.dtype, call.where);
  const InsideLevel below(frame.outer);
  return make_batched(Dispatcher<GeneralCall>::call(call.entry, call.where, {}, all), frame.level, true);
}

TensorType type_of_one(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  std::vector<TensorType> types;
  for (const Tensor& t : tensors) types.push_back(t.node()->type());
  return infer(call.entry.op, types, attributes.integers, attributes.wanted, call.where, attributes.subgraphs);
}

Tensor run_general(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes, unsigned depth) {
  std::vector<const Tensor*> given;
  std::vector<BatchedOperand> operands;
  for (const Tensor& t : tensors) given.push_back(&t), operands.push_back(unwrapped(t, depth));
  const VmapFrame& frame = frame_of_call(given, depth, call.where);
  const TensorType type = type_of_one(call, tensors, attributes);
  const InsideLevel below(frame.outer);
  const vjp::LineGuard line(call.where);
  if (std::ranges::none_of(operands, &BatchedOperand::batched)) {
    std::vector<Tensor> values;
    for (const BatchedOperand& o : operands) values.push_back(o.value);
    return make_batched(Dispatcher<GeneralCall>::call(call.entry, call.where, values, attributes), frame.level, false);
  }
  const BatchedCall batch{call.entry.op, operands, attributes, type, frame.level.size};
  const BatchingRule rule = batching_rule(call.entry.op);
  Tensor result = rule != nullptr ? rule(batch) : loop_over_batch(batch);
  if (result.shape() != batch.whole().shape)  // the dtype is the business of the keys below: autocast may narrow it
    throw_internal("the result shape of a batching rule differs from the op's", call.where);
  return make_batched(std::move(result), frame.level, true);
}

Tensor batched_general(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  unsigned depth = 0;
  for (const Tensor& t : tensors) depth = std::max(depth, depth_of(t));
  if (depth == 0 && vmap_frame != nullptr && family(call.entry.op) == Family::random) return draw(call, attributes);
  const bool at_gradient = call.keys.has(Functionality::autograd) &&
                           std::ranges::any_of(tensors, [&](const Tensor& t) { return has_history_at(t, depth); });
  if (depth == 0) return Dispatcher<GeneralCall>::redispatch(call, Functionality::batched, tensors, attributes);
  if (at_gradient)
    return Dispatcher<GeneralCall>::call_with(call.entry, keys_at_gradient(call), call.where, tensors, attributes);
  return run_general(call, tensors, attributes, depth);
}

}  // namespace

void register_batched_kernels() {
  const RegistrationKey everywhere = RegistrationKey::everywhere(Functionality::batched);
  set_family_kernels(everywhere, {&batched_unary, &batched_binary, &batched_ternary, &batched_general});
  register_fallback(
      {.boxed = &batched_boxed, .where = std::source_location::current(), .key = everywhere, .passes_composites = true})
      .keep();
}

}  // namespace fermata

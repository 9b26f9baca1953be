// See boxed_recording.h.
#include "frontend/engine/boxed_recording.h"

#include <algorithm>
#include <array>
#include <string>

#include "dispatch/call_context.h"
#include "dispatch/meta.h"
#include "dispatch/tuple_results.h"
#include "frontend/engine/capture.h"
#include "frontend/engine/control_step.h"
#include "ir/custom_op.h"
#include "runtime/effects.h"

namespace fermata {
namespace {

using std::memory_order_acquire, std::memory_order_relaxed;

/// Why a call of a kernel is not recorded; null where it is. It then runs on the spot.
const char* why_not_recorded(const OperatorEntry& entry, const Schema* schema, DispatchKeySet keys) {
  const auto has = [&](BackendKey b) { return entry.kernels[cell_of(Functionality::dense, b)].load() != nullptr; };
  if (keys.backend() == BackendKey::meta) return "it has no elements";
  if ((keys & kCompoundKeys).bits != 0) return "its operands are wrapper tensors";
  if (schema == nullptr || entry.boxed.load(memory_order_acquire) == Op::count) return "an operator without a schema";
  for (const SchemaResult& r : schema->results) {
    if (r.type != ArgType{}) return "an operator whose results are not tensors";
    if (!r.alias.set.empty() && !r.alias.write) return "an operator that returns views of its arguments";
  }
  if (!new_results(*schema).empty() && !has(BackendKey::meta)) return "an operator without a Meta kernel";
  return has(keys.backend()) ? nullptr : "an operator without a kernel for the backend";
}

/// Additional operands of a call that is not pure: the previous call with an effect, and a random stream.
struct Impurity {
  Impurity(Op op, BackendKey backend, std::vector<Tensor>& tensors, Location where) : effect(effect_of(op)) {
    if (effect == Effect::pure) return;
    const DrawStream reserved = context_hooks.reserve();
    stream = {reserved.key, reserved.offset};
    if (effect != Effect::effect) return;
    Node* const before = pending_effect_on(backend, where);
    if (before == nullptr) return;
    before->refs.fetch_add(Node::kTensor, memory_order_relaxed);
    tensors.emplace_back(before, DispatchKeySet(backend) | Functionality::dense);
  }
  std::span<const std::uint64_t> scalars() const {
    return effect == Effect::pure ? std::span<const std::uint64_t>() : stream;
  }

  Effect effect;
  std::array<std::uint64_t, 2> stream{};
};

/// The operand for a tensor that is written: a copy that was recorded for the kernel to write need not be made, as the
/// step makes one.
Tensor operand_of_written(const Tensor& t) {
  Node* const n = t.node();
  if (!n->pending() || n->op != Op::copy || n->refs.load(memory_order_acquire) != Node::kTensor) return t;
  Node* const from = n->operand(0);
  from->refs.fetch_add(Node::kTensor, memory_order_relaxed);
  return Tensor(from, t.keys() & kDataKeys);
}

/// A call of a kernel as one node of its boxed op, which remembers how it was dispatched.
Tensor record_boxed(const Call& call, const Stack& stack, std::span<const Tensor> written) {
  const OperatorEntry& boxed = operator_entry(call.entry.boxed.load(memory_order_acquire));
  std::vector<Tensor> tensors = tensors_of(stack);
  for (Tensor& t : tensors)
    if (std::ranges::any_of(written, [&](const Tensor& w) { return w.impl() == t.impl(); })) t = operand_of_written(t);
  const std::vector<std::int64_t> arguments = encode_arguments(stack);
  const BackendKey backend = call.keys.backend();
  const Impurity impurity(boxed.op, backend, tensors, call.where);
  const Call own{boxed, call.keys, call.where};
  const KernelFunction* const kernel =
      call.entry.kernels[cell_of(Functionality::dense, backend)].load(memory_order_acquire);
  const Tensor result = record_node(
      own, tensors, {.wanted = {}, .integers = arguments, .scalars = impurity.scalars(), .backend = backend},
      intern(present_context(kernel)));
  if (impurity.effect == Effect::effect) set_last_effect(result.node());
  return result;
}

/// The value at hand of a tensor, from now on that of another one.
void take_value_of(const Tensor& target, const Tensor& value) {
  Node* const node = value.node();
  node->refs.fetch_add(Node::kTensor, memory_order_relaxed);
  target.set_node(node);
}

/// Records a call; its results take the place of its arguments. Tensors that it writes get their new values.
void record_call(const Call& call, const Schema& schema, Stack& stack) {
  const std::vector<Tensor> written = written_tensors(&schema, stack);
  const std::vector<std::size_t> fresh = new_results(schema);
  std::vector<TensorType> types;
  const bool packed = written.size() + fresh.size() != 1;
  if (packed) {
    std::vector<TensorType> operands;
    for (const Tensor& t : tensors_of(stack)) operands.push_back(t.node()->type());
    types = result_types(call.entry, operands, encode_arguments(stack), call.where);
    if (call.keys.backend() != BackendKey::cpu) require_control_kernels(call.keys.backend());
  }
  const Tensor all = record_boxed(call, stack, written);
  std::vector<Tensor> results;
  const TupleLayout layout = tuple_layout(types);
  const Call unpack{operator_entry(Op::unpack), data_keys(call.keys, all.node()->backend), call.where};
  for (std::size_t i = 0; i < types.size(); ++i)
    results.push_back(record_node(
        unpack, {&all, 1},
        {.wanted = types[i], .integers = {&layout.offsets[i], 1}, .scalars = {}, .backend = all.node()->backend}));
  if (!packed) results.push_back(all);
  for (std::size_t i = 0; i < written.size(); ++i) take_value_of(written[i], results[i]);
  Stack out(schema.results.size());
  for (std::size_t i = 0; i < fresh.size(); ++i) out[fresh[i]] = results[written.size() + i];
  for (std::size_t i = 0; i < out.size(); ++i)
    for (std::size_t k = 0; k < schema.arguments.size() && schema.results[i].alias.write; ++k)
      if (schema.arguments[k].alias.set == schema.results[i].alias.set) out[i] = stack[k];
  stack = std::move(out);
}

}  // namespace

void capture_boxed(const Call& call, Stack& stack) {
  const Schema* schema = call.entry.schema.load(memory_order_acquire);
  const char* const why = why_not_recorded(call.entry, schema, call.keys);
  if (why == nullptr) return record_call(call, *schema, stack);
  if (call.keys.backend() != BackendKey::meta && (call.keys & kCompoundKeys).bits == 0) {
    require_no_scope(call, std::string("it is ") + why);
    if (effect_of(call.entry.op) == Effect::effect) run_effects(call.where);
  }
  for (const Tensor& t : tensors_of(stack))
    if (t.impl()->payload == nullptr && t.node()->pending()) tensor_hooks.materialize(t.node(), why, call.where);
  redispatch_boxed(call, Functionality::capture, stack);
}

}  // namespace fermata

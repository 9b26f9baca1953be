// The kernels of the Autograd key: run the call below, then put it on the tape if an operand wants a gradient.
//
// They are reached only where an operand carries the key and the thread does not exclude it, which is what "gradients
// are recorded" means; so there is no flag to test. One kernel per signature, like those of Capture.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "dispatch/kernel_table.h"
#include "fermata/device.h"
#include "fermata/modes.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/tensor/device_scope.h"
#include "frontend/transforms/autograd/autograd.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/ops/views.h"

namespace fermata {
namespace {

/// The level of vmap that a call is recorded at: the innermost of its operands'. Only gradients taken inside that level
/// are this call's business; those taken further out see the call below it, on what the wrappers hold.
template <class... Tensors> unsigned depth_of_call(const Tensors*... tensors) {
  unsigned depth = 0;
  ((depth = tensors != nullptr ? std::max(depth, depth_of(*tensors)) : depth), ...);
  return depth;
}

bool may_want_gradient(const Tensor* t, unsigned depth) {
  return t != nullptr && t->keys().has(Functionality::autograd) && depth_of(*t) == depth;
}

/// The call below this key. Inside vmap that is the Batched kernel, which has sent the call up here. A kernel that
/// stands in for that of the op has the op's derivative, whatever calls it is made of.
template <class Signature, class... Arguments>
Tensor pass_on(const Call& call, unsigned depth, const Arguments&... arguments) {
  std::optional<KeyGuard> unrecorded;
  if (depth == 0 && call.entry.boxed.load(std::memory_order_relaxed) != Op::count) [[unlikely]]
    unrecorded.emplace(DispatchKeySet(), Functionality::autograd);
  if (depth == 0) return Dispatcher<Signature>::redispatch(call, Functionality::autograd, arguments...);
  return Dispatcher<Signature>::call_with(call.entry, call.keys.below(Functionality::autograd) | Functionality::batched,
                                          call.where, arguments...);
}

/// Can there be a gradient at all? Results that are not floating or complex have none, and one that already has a
/// history is an operand handed back. What a wrapper tensor is made of has histories of its own.
bool differentiable(const Tensor& result) {
  return is_inexact(result.dtype()) && result.impl()->slot == nullptr && !is_composite_tensor(result);
}

bool is_of_complex(const Tensor& result, std::span<const Tensor* const> tensors) {
  return is_complex(result.dtype()) ||
         std::ranges::any_of(tensors, [](const Tensor* t) { return t != nullptr && is_complex(t->dtype()); });
}

/// Whether a matrix lies column by column: a view of a computed one, or an exchange of axes that is yet to be computed.
bool is_turned(const Node& n) {
  if (n.rank < 2 || n.extra == nullptr) return false;
  const std::size_t last = n.rank - 1u;
  if (n.extra->strided) return n.extra->strides[last - 1] == 1 && n.extra->strides[last] > 1;
  if (n.op != Op::permute) return false;
  const auto permute = decode<ops::Permute>({.attributes = n.extra->attributes, .shape = {}, .scalars = {}});
  return permute.axes.value[last] == static_cast<std::int64_t>(last - 1);
}

/// Makes the node of a result. Null operands are host numbers, listed in `numbers`.
void record(const Call& call, unsigned depth, const Tensor& result, std::span<const Tensor* const> tensors,
            std::span<const Operand* const> numbers, std::span<const std::int64_t> attributes) {
  GradEdge node = make_grad_node(call.entry.op, tensors.size(), call.where);
  if (is_of_complex(result, tensors)) [[unlikely]]
    if (const VjpRule* rule = complex_vjp_rule(call.entry.op)) node->rule = rule;
  const std::span<GradOperand> operands = node->operands();
  unsigned reads = 0;
  bool wanted = false;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (!may_want_gradient(tensors[k], depth)) continue;
    operands[k].edge = grad_edge(*tensors[k]);
    if (!operands[k].edge) continue;
    wanted = true;
    node->depth = std::max(node->depth, operands[k].edge->depth + 1);
    reads |= node->rule->entry(k).reads;
  }
  if (!wanted) return;
  const bool pointwise = is_pointwise(call.entry.op);
  const Shape shape = result.shape();
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    GradOperand& operand = operands[k];
    if (tensors[k] == nullptr) {
      operand.scalar = numbers[k]->scalar(), operand.is_scalar = true;
      continue;
    }
    operand.dtype = tensors[k]->dtype();
    if (const Shape own = tensors[k]->shape(); !pointwise || own != shape) operand.shape = std::make_unique<Shape>(own);
    if (call.entry.op == Op::matmul) operand.is_turned = is_turned(*tensors[k]->node());
    if (k < 3 && (reads >> k & 1u) != 0) operand.value = SavedValue(*tensors[k], depth);
  }
  if ((reads & VjpRule::kResult) != 0) node->result = SavedValue(result, depth);
  if (!attributes.empty()) {
    node->detail = std::make_unique<GradDetail>();
    node->detail->attributes.assign(attributes.begin(), attributes.end());
  }
  ensure_grad_state(result).edge = std::move(node);
  result.impl()->keys = result.impl()->keys | Functionality::autograd;
}

const Tensor* tensor_of(const Operand& o) { return o.is_tensor() ? &o.tensor() : nullptr; }

/// An element of the CPU that meets another device and wants a gradient: it is moved, so that its gradient comes back.
bool crosses(const Call& call, unsigned depth, const Tensor* t) {
  return may_want_gradient(t, depth) && t->rank() == 0 && call.keys.backend() != device(*t).backend();
}
Tensor crossed(const Call& call, unsigned depth, const Tensor* t) {
  return crosses(call, depth, t) ? to(*t, chosen_device(call.keys.backend()), call.where) : Tensor();
}

template <class... Operands> Tensor pointwise(const Call& call, const Operands&... operands) {
  const unsigned depth = depth_of_call(tensor_of(operands)...);
  if (call.keys.backend() != BackendKey::cpu && (crosses(call, depth, tensor_of(operands)) || ...)) [[unlikely]] {
    const std::array<Tensor, sizeof...(operands)> moved{crossed(call, depth, tensor_of(operands))...};
    std::size_t next = 0;
    const auto replace = [&](const Operand& o) {
      const Tensor& there = moved[next++];
      return there.defined() ? Operand(there, call.where) : o;
    };
    const auto again = [&](const auto&... o) {
      return Dispatcher<Tensor(const Operands&...)>::call_with(call.entry, call.keys, call.where, o...);
    };
    return std::apply(again, std::array<Operand, sizeof...(operands)>{replace(operands)...});
  }
  Tensor result = pass_on<Tensor(const Operands&...)>(call, depth, operands...);
  if (differentiable(result) && (may_want_gradient(tensor_of(operands), depth) || ...)) {
    const std::array<const Tensor*, sizeof...(operands)> tensors{tensor_of(operands)...};
    const std::array<const Operand*, sizeof...(operands)> numbers{&operands...};
    record(call, depth, result, tensors, numbers, {});
  }
  return result;
}

Tensor autograd_unary(const Call& call, const Operand& a) { return pointwise(call, a); }
Tensor autograd_binary(const Call& call, const Operand& a, const Operand& b) { return pointwise(call, a, b); }
Tensor autograd_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  return pointwise(call, a, b, c);
}

Tensor autograd_general(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  unsigned depth = 0;
  for (const Tensor& t : tensors) depth = std::max(depth, depth_of(t));
  Tensor result = pass_on<GeneralCall>(call, depth, tensors, attributes);
  if (!differentiable(result) ||
      std::ranges::none_of(tensors, [&](const Tensor& t) { return may_want_gradient(&t, depth); }))
    return result;
  std::array<const Tensor*, 3> few;
  std::vector<const Tensor*> many(tensors.size() > few.size() ? tensors.size() : 0);
  const std::span<const Tensor*> operands = many.empty() ? std::span(few).first(tensors.size()) : std::span(many);
  for (std::size_t k = 0; k < tensors.size(); ++k) operands[k] = &tensors[k];
  record(call, depth, result, operands, {}, attributes.integers);
  return result;
}

/// A node that throws when a gradient is requested; null if none can be.
GradEdge missing_derivative(const Call& call, unsigned depth, std::span<const Tensor> tensors) {
  GradEdge node = make_grad_node(call.entry.op, tensors.size(), call.where);
  bool wanted = false;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    GradOperand& operand = node->operands()[k];
    operand.dtype = tensors[k].dtype(), operand.shape = std::make_unique<Shape>(tensors[k].shape());
    operand.edge = may_want_gradient(&tensors[k], depth) ? grad_edge(tensors[k]) : GradEdge();
    if (!operand.edge) continue;
    wanted = true;
    node->depth = std::max(node->depth, operand.edge->depth + 1);
  }
  return wanted ? std::move(node) : GradEdge();
}

void set_history(const Tensor& tensor, const GradEdge& node) {
  ensure_grad_state(tensor).edge = node;
  tensor.impl()->keys = tensor.impl()->keys | Functionality::autograd;
}

/// The arguments that a call writes.
std::vector<Tensor> written_arguments(const Call& call, const Stack& stack) {
  std::vector<Tensor> written;
  const Schema* schema = call.entry.schema.load(std::memory_order_acquire);
  for (std::size_t i = 0; schema != nullptr && i < schema->arguments.size() && i < stack.size(); ++i)
    if (schema->arguments[i].alias.write && stack[i].is<Tensor>() && stack[i].as<Tensor>().defined())
      written.push_back(stack[i].as<Tensor>());
  return written;
}

/// A kernel that is made of differentiable calls has a derivative, by theirs: where one is wanted it runs now, as in
/// eager mode, so that they are recorded one by one. False inside a function that is being compiled where the kernel
/// reads values, which are not there: then the call is recorded as a whole.
bool run_now(const Call& call, Stack& stack) {
  if (!call.keys.has(Functionality::capture)) return false;
  Stack arguments = stack;
  std::optional<ModeGuard> eager;
  if (!in_capture_scope()) {
    for (const Tensor& t : tensors_of(arguments))
      if (t.impl()->payload == nullptr && t.node()->pending())
        tensor_hooks.materialize(t.node(), "an operator without a derivative", call.where);
    eager.emplace(Mode::eager);
  }
  try {
    redispatch_below_autograd({call.entry, call.keys - Functionality::capture, call.where}, arguments);
  } catch (const UserError& error) {
    if (error.code() != 1701) throw;
    return false;
  }
  stack = std::move(arguments);
  return true;
}

/// Custom operators without a registered derivative: results, and written arguments, remember that there is
/// one to be missed, so that asking for it raises.
void autograd_boxed(const Call& call, Stack& stack) {
  const std::vector<Tensor> written = written_arguments(call, stack);
  unsigned depth = 0;
  for (const Tensor& t : tensors_of(stack)) depth = std::max(depth, depth_of(t));
  const GradEdge node = missing_derivative(call, depth, tensors_of(stack));
  for (const Tensor& target : written)
    if (node && target.impl()->view != nullptr)
      throw UnsupportedError(
          2009, format_error(2009, "UnsupportedError",
                             fmt::format("{}: in-place write to a view while gradients are recorded", call.entry.name),
                             {{"x", to_string(target.dtype(), target.shape()), ""}}, call.where,
                             "write to a copy() of the view, then assign() it"));
  if (!node || !run_now(call, stack)) redispatch_below_autograd(call, stack);
  if (!node) return;
  for (const Tensor& target : written)
    if (is_inexact(target.dtype())) set_history(target, node);
  for (const Tensor& result : tensors_of(stack))
    if (differentiable(result)) set_history(result, node);
}

[[noreturn]] void throw_leaf_written(const Tensor& leaf, Location where) {
  throw GradientError(1712,
                      format_error(1712, "GradientError",
                                   "in-place write to a leaf that requires a gradient, while gradients are recorded",
                                   {{"x", to_string(leaf.dtype(), leaf.shape()), ""}}, where,
                                   "write it under no_grad, or write to a copy of it"));
}

}  // namespace

void register_autograd_kernels() {
  const RegistrationKey everywhere = RegistrationKey::everywhere(Functionality::autograd);
  set_family_kernels(everywhere, {&autograd_unary, &autograd_binary, &autograd_ternary, &autograd_general});
  register_fallback({.boxed = &autograd_boxed, .where = std::source_location::current(), .key = everywhere}).keep();
}

void take_history(const Tensor& target, const Tensor& result, Location where) {
  TensorImpl* impl = target.impl();
  GradState* state = grad_state(impl);
  const bool recording = !thread_keys.excluded.has(Functionality::autograd);
  if (state != nullptr && state->leaf != nullptr) {
    if (recording) throw_leaf_written(target, where);
    return;
  }
  GradEdge edge = recording && is_inexact(target.dtype()) ? grad_edge(result) : GradEdge();
  if (edge) {
    ensure_grad_state(target).edge = std::move(edge);
    impl->keys = impl->keys | Functionality::autograd;
  } else if (state != nullptr) {
    delete std::exchange(impl->slot, nullptr);
    impl->keys = impl->keys - Functionality::autograd;
  }
}

}  // namespace fermata

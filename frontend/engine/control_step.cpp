// See control_step.h.
#include "frontend/engine/control_step.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "dispatch/control_kernels.h"
#include "dispatch/operator.h"
#include "frontend/engine/function_recording.h"
#include "frontend/ops/calls.h"
#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/ops/control.h"
#include "ir/tuple_layout.h"
#include "runtime/effects.h"

namespace fermata {

const CapturedFunction& captured(const Subgraph& subgraph) {
  const auto* const function = dynamic_cast<const CapturedFunction*>(&subgraph);
  if (function == nullptr) throw_internal("a node is run with a function that was not captured");
  return *function;
}

bool has_effect(const Node& node) {
  if (effect_of(node.op) == Effect::effect) return true;
  const Subgraphs* const functions = node.extra != nullptr ? node.extra->subgraphs.get() : nullptr;
  for (std::size_t i = 0; functions != nullptr && i < functions->size(); ++i)
    if (captured((*functions)[i]).has_effects()) return true;
  return false;
}

namespace {

/// Dispatch starts at recording: the transforms of control flow have already run, and a boxed kernel
/// would lose the functions.
constexpr DispatchKeySet kAllKeys(~std::uint64_t{0}), kWrapperKeys =
                                                          kAllKeys - kAllKeys.below(Functionality::ad_inplace_or_view);

/// Tensors that functions read in addition to the operands of a node, each once.
class SharedOperands {
 public:
  std::size_t place(const Tensor& t) {
    const auto same = std::ranges::find_if(tensors_, [&](const Tensor& known) { return known.impl() == t.impl(); });
    if (same == tensors_.end()) return tensors_.push_back(t), tensors_.size() - 1;
    return static_cast<std::size_t>(same - tensors_.begin());
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

/// Positions of the arguments of a function among those of the node: first its own, then `rest` and its captures, as
/// placed from `first` on.
std::vector<std::size_t> places_of(const CapturedFunction& f, std::vector<std::size_t> own, std::size_t first,
                                   std::span<const Tensor> rest, SharedOperands& shared) {
  for (const Tensor& t : rest)
    own.push_back(f.reads(own.size()) ? first + shared.place(t) : CapturedFunction::kNoPlace);
  for (const Tensor& t : f.captures()) own.push_back(first + shared.place(t));
  return own;
}

std::vector<std::size_t> first_numbers(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = i;
  return numbers;
}

void add_types(std::vector<TensorType>& types, std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors) types.push_back(type_of(t));
}

}  // namespace

ControlCall ControlCall::cond(const Tensor& predicate, Function when_true, Function when_false,
                              std::span<const Tensor> operands, const Tensor& seed) {
  ControlCall call(Op::cond);
  const bool draws = seed.defined() && (when_true->draws() || when_false->draws());
  const auto results = when_true->results();
  call.results_.assign(results.begin(), results.end());
  call.attributes_ = encode_list(ops::Cond{{draws}, {}, {}});
  SharedOperands shared;
  const auto of_true = places_of(*when_true, {}, 0, operands, shared),
             of_false = places_of(*when_false, {}, 0, operands, shared);
  std::vector<TensorType> arguments;
  add_types(arguments, shared.tensors());
  when_true->arrange(of_true, arguments), when_false->arrange(of_false, arguments);
  call.add({&predicate, 1});
  if (draws) call.add({&seed, 1});
  call.add(shared.tensors());
  call.own(std::move(when_true), std::move(when_false));
  return call;
}

ControlCall ControlCall::while_loop(Function condition, Function body, std::span<const Tensor> init,
                                    std::span<const Tensor> rest, const Tensor& seed) {
  ControlCall call(Op::while_loop);
  const bool draws = seed.defined() && (condition->draws() || body->draws());
  add_types(call.results_, init);
  call.attributes_ = encode_list(ops::WhileLoop{{draws}, {}, {}});
  SharedOperands shared;
  const std::size_t count = init.size();
  const auto of_condition = places_of(*condition, first_numbers(count), count, rest, shared),
             of_body = places_of(*body, first_numbers(count), count, rest, shared);
  std::vector<TensorType> arguments = call.results_;
  add_types(arguments, shared.tensors());
  condition->arrange(of_condition, arguments), body->arrange(of_body, arguments);
  if (draws) call.add({&seed, 1});
  call.add(init), call.add(shared.tensors());
  call.own(std::move(condition), std::move(body));
  return call;
}

ControlCall ControlCall::scan(Function body, std::span<const Tensor> init, std::span<const Tensor> sequences,
                              std::span<const Tensor> rest, std::int64_t length, bool reverse, const Tensor& seed) {
  ControlCall call(Op::scan);
  // Sequences that the function does not read are not operands, so they need not be computed.
  std::vector<Tensor> over;
  std::vector<TensorType> arguments(body->arguments().begin(), body->arguments().begin() + std::ssize(init));
  std::vector<std::size_t> own = first_numbers(init.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const bool is_read = body->reads(init.size() + i);
    own.push_back(is_read ? init.size() + over.size() : CapturedFunction::kNoPlace);
    if (is_read) arguments.push_back(body->arguments()[init.size() + i]), over.push_back(sequences[i]);
  }
  const ops::ScanLoop op{
      {seed.defined() && body->draws()}, {std::ssize(init)}, {std::ssize(over)}, {length}, {reverse}, {}};
  call.attributes_ = encode_list(op), call.results_ = op.stacked(body->results());
  SharedOperands shared;
  const auto places = places_of(*body, std::move(own), init.size() + over.size(), rest, shared);
  add_types(arguments, shared.tensors());
  body->arrange(places, arguments);
  if (op.seeded.value) call.add({&seed, 1});
  call.add(init), call.add(over), call.add(shared.tensors());
  call.own(std::move(body));
  return call;
}

void ControlCall::own(Function first, Function second) {
  has_effects_ = first->has_effects() || (second != nullptr && second->has_effects());
  std::vector<std::unique_ptr<const Subgraph>> functions;
  functions.reserve(2);
  functions.push_back(std::move(first));
  if (second != nullptr) functions.push_back(std::move(second));
  subgraphs_ = std::make_shared<const Subgraphs>(std::move(functions));
}

Tensor ControlCall::run(Location where) {
  if (Node* const before = has_effects_ ? pending_effect() : nullptr) operands_.push_back(tensor_of(before));
  for (const Tensor& t : operands_) require_control_kernels(t.node()->backend);
  const Tensor result = general_call(op_, operands_,
                                     {.wanted = {},
                                      .integers = attributes_,
                                      .scalars = {},
                                      .backend = captured((*subgraphs_)[0]).backend(),
                                      .subgraphs = subgraphs_.get()},
                                     where);
  if (has_effects_ && result.node()->pending()) set_last_effect(result.node());
  return result;
}

std::vector<Tensor> ControlCall::record(Location where) {
  const KeyGuard plain({}, kWrapperKeys);
  const Tensor all = run(where);
  if (results_.size() == 1) return {all};
  const TupleLayout layout = tuple_layout(results_);
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < results_.size(); ++i)
    parts.push_back(general_call(Op::unpack, {&all, 1},
                                 {.wanted = results_[i], .integers = {&layout.offsets[i], 1}, .scalars = {}}, where));
  return parts;
}

void register_control_kernels() { add_control_kernels<BackendKey::cpu>(); }

void require_control_kernels(BackendKey backend) {
  static std::array<std::once_flag, kBackendCount> done;
  const auto once = [&]<BackendKey B>() {
    if (backend == B) std::call_once(done[static_cast<std::size_t>(B)], [] { add_control_kernels<B>(); });
  };
  once.operator()<BackendKey::cuda>();
  once.operator()<BackendKey::private_use1>();
  once.operator()<BackendKey::private_use2>();
  once.operator()<BackendKey::private_use3>();
}

}  // namespace fermata

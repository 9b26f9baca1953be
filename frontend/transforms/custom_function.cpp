// See fermata/custom_function.h. A call is one GradNode for all its results, and one above it for each, which says which
// result its gradient is of.
#include "fermata/custom_function.h"

#include <algorithm>

#include "dispatch/registration.h"
#include "frontend/transforms/autograd_tape.h"
#include "frontend/transforms/batched.h"
#include "ir/error.h"

namespace fermata {

/// Results are saved by their number: naming their GradNode would be a circle.
struct FunctionContext::State {
  struct Saved {
    SavedValue value;
    GradEdge edge;             // of a value with a history
    std::int64_t result = -1;  // or its number
  };
  std::vector<Tensor> given;  // until the call has finished
  std::vector<Saved> saved;
  bool with_graph = false, spent = false;
  GradNode* node = nullptr;  // whose detail owns this
  Location where;
};

FunctionContext::FunctionContext() : state_(std::make_unique<State>()) {}
FunctionContext::~FunctionContext() = default;

void FunctionContext::save_for_backward(std::span<const Tensor> tensors) {
  state_->given.insert(state_->given.end(), tensors.begin(), tensors.end());
}

std::vector<Tensor> FunctionContext::saved() const {
  if (state_->spent)
    throw GradientError(1713,
                        format_error(1713, "GradientError",
                                     "backward: the values that a custom function saved have been used and let go", {},
                                     state_->where, "pass retain_graph = true to the first backward pass"));
  std::vector<Tensor> out;
  for (const State::Saved& s : state_->saved) {
    Tensor value = s.value.unpack();
    if (state_->with_graph && s.edge) value = with_history(value, s.edge);
    if (state_->with_graph && s.result >= 0) value = with_history(value, result_edge(state_->node, s.result));
    out.push_back(std::move(value));
  }
  return out;
}

namespace {

/// The context and the function that a GradNode keeps.
class CallBackward final : public HandWritten {
 public:
  CallBackward(std::string name, FunctionCall::Backward backward, FunctionContext* context,
               std::function<void(bool, GradNode*)> prepare, std::function<void()> release, std::shared_ptr<void> owner)
      : name_(std::move(name)),
        backward_(std::move(backward)),
        context_(context),
        prepare_(std::move(prepare)),
        release_(std::move(release)),
        owner_(std::move(owner)) {}
  std::string_view name() const override { return name_; }
  std::vector<Tensor> backward(GradNode* node, std::span<const Tensor> gradients, bool with_graph) override {
    prepare_(with_graph, node);
    return backward_(*context_, gradients);
  }
  void release() override { release_(); }

 private:
  std::string name_;
  FunctionCall::Backward backward_;
  FunctionContext* context_;
  std::function<void(bool, GradNode*)> prepare_;
  std::function<void()> release_;
  std::shared_ptr<void> owner_;
};

}  // namespace

struct FunctionCall::State {
  std::string name;
  std::vector<Tensor> arguments;
  Backward backward;
  Location where;
  std::shared_ptr<FunctionContext> context = std::make_shared<FunctionContext>();
  bool recorded = false;
};

FunctionCall::FunctionCall(std::string name, std::vector<Tensor> arguments, Backward backward, Location where)
    : state_(std::make_unique<State>(State{std::move(name), std::move(arguments), std::move(backward), where})) {
  state_->recorded = grad_enabled() && std::ranges::any_of(state_->arguments, [](const Tensor& t) {
                       return t.defined() && t.keys().has(Functionality::autograd);
                     });
}
FunctionCall::~FunctionCall() = default;
FunctionContext& FunctionCall::context() { return *state_->context; }
bool FunctionCall::recorded() const { return state_->recorded; }

namespace {

VmapLevel level_of_depth(std::span<const Tensor> tensors, unsigned depth) {
  for (const Tensor& t : tensors)
    if (t.defined() && depth_of(t) == depth) return level_of(t);
  return {};
}

}  // namespace

std::vector<Tensor> FunctionCall::finish(std::vector<Tensor> results) {
  FunctionContext::State& context = *state_->context->state_;
  unsigned depth = 0;
  for (const Tensor& t : state_->arguments) {
    if (!t.defined()) continue;
    depth = std::max(depth, depth_of(t));
    if (grad_enabled() && has_history_below(t))
      throw UnsupportedError(2743, format_error(2743, "UnsupportedError",
                                                "a custom function inside vmap, whose gradient is taken outside of it",
                                                {{"x", to_string(t.dtype(), t.shape()), "batched"}}, state_->where,
                                                "take the gradient inside: vmap(grad(f))"));
  }
  if (!state_->recorded) return results;
  const auto edge_here = [&](const Tensor& t) { return depth_of(t) == depth ? grad_edge(t) : GradEdge(); };
  GradEdge node = make_grad_node(Op::copy, state_->arguments.size(), state_->where);
  for (std::size_t k = 0; k < state_->arguments.size(); ++k) {
    const Tensor& t = state_->arguments[k];
    GradOperand& operand = node->operands()[k];
    if (!t.defined()) continue;
    operand.edge = edge_here(t), operand.dtype = t.dtype(), operand.shape = std::make_unique<Shape>(t.shape());
    if (operand.edge) node->depth = std::max(node->depth, operand.edge->depth + 1);
  }
  for (const Tensor& t : context.given) {
    FunctionContext::State::Saved saved{SavedValue(t, depth), edge_here(t), -1};
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i].impl() == t.impl()) saved.edge = {}, saved.result = static_cast<std::int64_t>(i);
    context.saved.push_back(std::move(saved));
  }
  context.given.clear(), context.where = state_->where;
  const std::shared_ptr<FunctionContext> owner = state_->context;
  node->detail = std::make_unique<GradDetail>();
  node->detail->result_count = static_cast<std::uint32_t>(results.size());
  FunctionContext::State* const held = owner->state_.get();
  node->detail->hand_written = std::make_unique<CallBackward>(
      state_->name, std::move(state_->backward), owner.get(),
      [held](bool with_graph, GradNode* of) { held->with_graph = with_graph, held->node = of; },
      [held] { held->spent = !held->saved.empty(), held->saved.clear(); }, owner);
  std::vector<Tensor> out;
  for (Tensor& result : results)
    if (depth != 0) result = at_level(result, level_of_depth(state_->arguments, depth));
  for (std::size_t i = 0; i < results.size(); ++i)
    out.push_back(is_inexact(results[i].dtype())
                      ? with_history(results[i], result_edge(node.get(), static_cast<std::int64_t>(i)))
                      : results[i]);
  return out;
}

std::function<void(const Call&, Stack&)> derivative(
    std::function<std::vector<Tensor>(const DerivativeArguments&)> backward) {
  return [backward = std::move(backward)](const Call& call, Stack& stack) {
    const std::vector<Tensor> tensors = tensors_of(stack);
    const std::vector<std::int64_t> arguments = encode_arguments(stack);
    const std::size_t count = tensors.size();
    FunctionCall recorded(
        std::string(call.entry.name), tensors,
        [backward, arguments, count](FunctionContext& context, std::span<const Tensor> gradients) {
          const std::vector<Tensor> saved = context.saved();
          const std::span<const Tensor> inputs = std::span(saved).first(count),
                                        results = std::span(saved).subspan(count);
          return backward({decode_arguments(arguments, inputs), {results.begin(), results.end()}, gradients});
        },
        call.where);
    redispatch_below_autograd(call, stack);
    if (!recorded.recorded()) return;
    std::vector<Tensor> results = tensors_of(stack);
    recorded.context().save_for_backward(tensors);
    recorded.context().save_for_backward(results);
    results = recorded.finish(std::move(results));
    std::size_t next = 0;
    for (Value& value : stack)
      value.for_each_tensor([&](Tensor& t) {
        if (t.defined()) t = results[next++];
      });
  };
}

}  // namespace fermata

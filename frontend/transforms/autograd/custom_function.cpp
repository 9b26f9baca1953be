// See fermata/custom_function.h. A call is one GradNode for all its results, and one above it for each, which says
// which result its gradient is of.
#include "fermata/custom_function.h"

#include <algorithm>

#include "dispatch/registration.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "frontend/transforms/autograd/custom_backward.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "frontend/transforms/vmap/batched.h"
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
  GradNode* node = nullptr;     // whose detail owns this
  std::vector<Tensor> literal;  // of a backward pass inside vmap: what saved() gives
  Location where;
};

FunctionContext::FunctionContext() : state_(std::make_unique<State>()) {}
FunctionContext::~FunctionContext() = default;

void FunctionContext::save_for_backward(std::span<const Tensor> tensors) {
  state_->given.insert(state_->given.end(), tensors.begin(), tensors.end());
}

std::vector<Tensor> FunctionContext::saved() const {
  if (!state_->literal.empty()) return state_->literal;
  if (state_->spent)
    throw GradientError(
        1713, format_error(1713, "GradientError", "backward: the values saved by a custom function have been freed", {},
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
class CallBackward final : public CustomBackward {
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
  bool recorded = false, by_parts = false;
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

VmapLevel innermost_level(std::span<const Tensor> tensors) {
  VmapLevel level;
  for (const Tensor& t : tensors)
    if (t.defined() && depth_of(t) > level.depth) level = level_of(t);
  return level;
}

/// What is below the wrappers of one level, and which of it is a batch.
struct BelowLevel {
  std::vector<Tensor> tensors;
  std::vector<bool> batched;
  BelowLevel(std::span<const Tensor> wrapped, const VmapLevel& level) {
    for (const Tensor& t : wrapped) {
      const bool own = t.defined() && depth_of(t) == level.depth;
      tensors.push_back(own ? batched_tensor(t).physical : t);
      batched.push_back(own && batched_tensor(t).batched);
    }
  }
  Tensor wrapped(std::size_t i, const Tensor& value, const VmapLevel& level) const {
    return value.defined() ? make_batched(same_value(value), level, batched[i]) : value;
  }
};

/// The gradient of an argument below the level, from that inside it.
Tensor unwrapped_gradient(const Tensor& inside, const VmapLevel& level, bool batched_argument, bool batched_results) {
  const Tensor own = at_level(inside, level);
  const BatchedTensor& b = batched_tensor(own);
  Tensor value = b.physical;
  if (!b.batched && (batched_argument || batched_results)) {
    Shape all{level.size};
    for (const std::int64_t size : value.shape()) all.push_back(size);
    value = vjp::broadcast_to(value, all).tensor();
  }
  const bool has_batch = b.batched || batched_argument || batched_results;
  return has_batch && !batched_argument ? vjp::reduce(Op::sum, value, 1, false).tensor() : value;
}

bool has_own_history(const Tensor& t, const VmapLevel& level) {
  return t.defined() && depth_of(t) == level.depth && t.keys().has(Functionality::autograd);
}
bool is_differentiated_outside(const Tensor& t, const VmapLevel& level) {
  return has_history_below(t) || (depth_of(t) < level.depth && t.keys().has(Functionality::autograd));
}

}  // namespace

void FunctionCall::has_histories_below() { state_->by_parts = true; }

/// Gradients that are taken outside of the vmap that the call is in see another call: of what is below the wrappers,
/// whose backward pass runs this one inside a vmap of its own.
void FunctionCall::record_below(std::vector<Tensor>& results) const {
  const VmapLevel level = innermost_level(state_->arguments);
  if (level.depth == 0 || state_->by_parts || !grad_enabled() ||
      std::ranges::none_of(state_->arguments,
                           [&](const Tensor& t) { return t.defined() && is_differentiated_outside(t, level); }))
    return;
  FunctionContext::State& context = *state_->context->state_;
  std::vector<Tensor> own;
  for (const Tensor& result : results) own.push_back(at_level(result, level));
  const auto arguments = std::make_shared<BelowLevel>(state_->arguments, level);
  const auto outcome = std::make_shared<BelowLevel>(own, level);
  const auto given = std::make_shared<BelowLevel>(context.given, level);
  for (std::size_t k = 0; k < context.given.size(); ++k)
    for (std::size_t i = 0; i < results.size(); ++i)
      if (context.given[k].impl() == results[i].impl())
        given->tensors[k] = outcome->tensors[i], given->batched[k] = outcome->batched[i];
  const std::int64_t size = level.size;
  Backward below = [backward = state_->backward, arguments_batched = arguments->batched, outcome, given, size](
                       FunctionContext& outer, std::span<const Tensor> gradients) {
    VmapFrame frame{new_level(size), vmap_frame};
    std::vector<Tensor> inside, saved = outer.saved();
    for (std::size_t i = 0; i < gradients.size(); ++i) inside.push_back(outcome->wrapped(i, gradients[i], frame.level));
    for (std::size_t i = 0; i < saved.size(); ++i) saved[i] = given->wrapped(i, saved[i], frame.level);
    FunctionContext context;
    context.state_->literal = std::move(saved), context.data = outer.data;
    {
      const InsideLevel level(&frame);
      inside = backward(context, inside);
    }
    const bool batched_results = std::ranges::find(outcome->batched, true) != outcome->batched.end();
    for (std::size_t k = 0; k < inside.size() && k < arguments_batched.size(); ++k)
      if (inside[k].defined())
        inside[k] = unwrapped_gradient(inside[k], frame.level, arguments_batched[k], batched_results);
    return inside;
  };
  FunctionCall call(state_->name, arguments->tensors, std::move(below), state_->where);
  call.context().save_for_backward(given->tensors);
  call.context().data = state_->context->data;
  const std::vector<Tensor> recorded = call.finish(outcome->tensors);
  given->tensors.clear(), outcome->tensors.clear();  // only which are batches is asked later
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor result = make_batched(recorded[i], level, outcome->batched[i]);
    for (Tensor& t : context.given)
      if (t.impl() == results[i].impl()) t = result;
    results[i] = result;
  }
}

std::vector<Tensor> FunctionCall::finish(std::vector<Tensor> results) {
  record_below(results);
  const VmapLevel level = innermost_level(state_->arguments);
  if (!state_->recorded ||
      std::ranges::none_of(state_->arguments, [&](const Tensor& t) { return has_own_history(t, level); }))
    return results;
  CustomBackwardCall call{std::move(state_->name), state_->arguments, {}, std::move(state_->backward), state_->where};
  return record_custom_backward(std::move(call), state_->context, level, std::move(results));
}

std::vector<Tensor> record_custom_backward(CustomBackwardCall call, std::shared_ptr<FunctionContext> owner,
                                           const VmapLevel& level, std::vector<Tensor> results) {
  FunctionContext::State& context = *owner->state_;
  const auto edge_here = [&](const Tensor& t) { return depth_of(t) == level.depth ? grad_edge(t) : GradEdge(); };
  GradEdge node = make_grad_node(Op::copy, call.arguments.size() + call.others.size(), call.where);
  for (std::size_t k = 0; k < node->count; ++k) {
    GradOperand& operand = node->operands()[k];
    if (k >= call.arguments.size()) {
      operand.edge = call.others[k - call.arguments.size()];
    } else if (const Tensor& t = call.arguments[k]; t.defined()) {
      operand.edge = edge_here(t), operand.dtype = t.dtype(), operand.shape = std::make_unique<Shape>(t.shape());
    }
    if (operand.edge) node->depth = std::max(node->depth, operand.edge->depth + 1);
  }
  for (const Tensor& t : context.given) {
    FunctionContext::State::Saved saved{SavedValue(t, level.depth), edge_here(t), -1};
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i].impl() == t.impl()) saved.edge = {}, saved.result = static_cast<std::int64_t>(i);
    context.saved.push_back(std::move(saved));
  }
  context.given.clear(), context.where = call.where;
  node->detail = std::make_unique<GradDetail>();
  node->detail->result_count = static_cast<std::uint32_t>(results.size());
  FunctionContext::State* const held = owner->state_.get();
  node->detail->custom_backward = std::make_unique<CallBackward>(
      std::move(call.name), std::move(call.backward), owner.get(),
      [held](bool with_graph, GradNode* of) { held->with_graph = with_graph, held->node = of; },
      [held] { held->spent = !held->saved.empty(), held->saved.clear(); }, owner);
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Tensor own = level.depth != 0 ? at_level(results[i], level) : results[i];
    out.push_back(is_inexact(own.dtype()) ? with_history(own, result_edge(node.get(), static_cast<std::int64_t>(i)))
                                          : own);
  }
  return out;
}

bool is_recorded_with_graph(const FunctionContext& context) { return context.state_->with_graph; }

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
    recorded.has_histories_below();  // below the wrappers the call was made again, and recorded by this kernel
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

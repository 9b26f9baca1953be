// See fermata/checkpoint.h. The forward pass runs on a tape of its own, which tells what the results depend on and is
// thrown away; the backward pass runs the function again on another one, and walks that.
#include "fermata/checkpoint.h"

#include <algorithm>
#include <memory>

#include "fermata/device.h"
#include "fermata/modes.h"
#include "frontend/engine/control_step.h"
#include "frontend/engine/generator_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/custom_backward.h"
#include "frontend/transforms/autograd/function_tape.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "frontend/transforms/trace/lowered_function.h"
#include "ir/scope.h"

namespace fermata {
namespace {

/// The arguments in buffers that are filled once the gradient is there: a plan that computes both passes would else
/// find that it has every value of the function already, and keep them.
void wait_for(std::span<Tensor> arguments, std::span<const Tensor> gradients, unsigned depth, Location where) {
  const auto first = std::ranges::find_if(gradients, &Tensor::defined);
  if (first == gradients.end() || mode() == Mode::eager) return;
  Tensor arrived = *first;
  while (depth_of(arrived) > depth) arrived = Tensor(batched_tensor(arrived).physical);  // as in jacrev
  const vjp::LineGuard line(where);
  for (Tensor& x : arguments) {
    const Tensor operands[] = {x, arrived};
    require_control_kernels(x.node()->backend);
    if (device(x) == device(arrived) && !is_composite_tensor(x)) x = vjp::call(Op::after, operands, {}).tensor();
  }
}

struct Rerun {
  TensorFunction f;
  std::vector<GradEdge> others;
  Generator start;
  std::shared_ptr<SavedFrame> frame;
  Location where;
  ScopePlace place = ScopePlace::current();

  std::vector<Tensor> operator()(FunctionContext& context, std::span<const Tensor> gradients) const {
    std::vector<Tensor> arguments = context.saved();
    wait_for(arguments, gradients, frame->frame() == nullptr ? 0 : frame->frame()->level.depth, where);
    std::unique_ptr<FunctionTape> evaluated;
    {
      const InsideLevel level(frame->frame());
      const GeneratorScope draws(start);
      const ScopePlaceGuard scope(place);  // of the call: the modules within it have the names of their paths
      auto tape = std::make_unique<FunctionTape>(where);
      for (Tensor& x : arguments) x = tape->mark(x);
      tape->finish(f(arguments));
      evaluated = std::move(tape);
    }
    return evaluated->pull(gradients, others, is_recorded_with_graph(context));
  }
};

/// The call one level further out.
std::vector<Tensor> below_vmap(const TensorFunction& f, const std::vector<Tensor>& arguments, Location where) {
  const VmapFrame& frame = *vmap_frame;
  const BelowWrappers below(arguments, frame.level);
  const TensorFunction lowered = below_level(f, below.batched);
  std::vector<Tensor> results;
  {
    const InsideLevel outside(frame.outer);
    results = detail::checkpoint_flat(lowered, below.tensors, where);
  }
  for (Tensor& t : results) t = make_batched(same_value(t), frame.level, true);
  return results;
}

}  // namespace

std::vector<Tensor> detail::checkpoint_flat(const TensorFunction& f, const std::vector<Tensor>& arguments,
                                            Location where) {
  for (const Tensor& x : arguments) require_defined("checkpoint", x, where);
  if (!grad_enabled()) return f(arguments);
  const Generator start = default_generator();
  std::vector<Tensor> results;
  std::vector<GradEdge> others;
  VmapLevel level;
  bool has_history = false;
  {
    FunctionTape tape(where);
    std::vector<Tensor> marked;
    for (const Tensor& x : arguments) marked.push_back(tape.mark(x));
    tape.finish(f(marked));
    others = tape.outside(), level = tape.level();
    has_history = !others.empty() || std::ranges::any_of(tape.marks(), [](const GradEdge& mark) {
      return mark && mark->operands()[0].edge;
    });
    for (std::size_t i = 0; i < tape.result_count(); ++i) {
      const Tensor& y = tape.recorded_result(i);
      results.push_back(depth_of(y) < level.depth ? y : without_history(y));
    }
  }
  // Gradients that are taken outside of this vmap are of what is below the wrappers, and so is what they keep.
  if (level.depth != 0 && std::ranges::any_of(results, [](const Tensor& y) {
        return y.keys().has(Functionality::autograd) || has_history_below(y);
      })) {
    default_generator() = start;
    results = below_vmap(f, arguments, where);
  }
  if (!has_history) return results;
  const auto context = std::make_shared<FunctionContext>();
  context->save_for_backward(arguments);
  const auto frame = std::make_shared<SavedFrame>(vmap_frame);
  return record_custom_backward({"checkpoint", arguments, others, Rerun{f, others, start, frame, where}, where},
                                context, level, std::move(results));
}

}  // namespace fermata

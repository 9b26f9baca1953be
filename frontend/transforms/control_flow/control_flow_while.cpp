// while_loop: see fermata/control_flow.h.
#include "fermata/control_flow.h"

#include <algorithm>

#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/engine/control_step.h"
#include "frontend/engine/no_memory.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "frontend/transforms/control_flow/control_flow_parts.h"
#include "ir/error.h"
#include "runtime/cancellation.h"

namespace fermata {
namespace {

using namespace control;

void require_same_state(std::span<const TensorType> before, std::span<const TensorType> after, Location where) {
  require_same_types(1763, "while_loop: the body changes the shape or dtype of the state", "takes", before, "gives",
                     after, where);
}

Tensor holds(const TensorFunction& condition, std::span<const Tensor> state, Location where) {
  const std::vector<Tensor> given = condition(state);
  if (given.size() != 1)
    throw ValueError(1764,
                     format_error(1764, "ValueError", "while_loop: the condition must return one tensor", {}, where));
  return one_bool("while_loop", given[0], where);
}

/// The new state where `running` is true, of a batch in front or of nothing.
std::vector<Tensor> keep_finished(const Tensor& running, std::vector<Tensor> next, std::span<const Tensor> state,
                                  Location where) {
  const vjp::LineGuard line(where);
  for (std::size_t i = 0; i < next.size(); ++i) {
    Shape sizes = running.shape();
    while (sizes.rank() < next[i].rank()) sizes.push_back(1);
    const vjp::VjpTensor mask = sizes.rank() == running.rank() ? vjp::VjpTensor(running) : vjp::reshape(running, sizes);
    next[i] = vjp::where(mask, next[i], state[i]).tensor();
  }
  return next;
}

struct WhileCall {
  TensorFunction condition, body;
  Tensor seed;
  Location where;

  std::vector<Tensor> run_plain(std::vector<Tensor> state) const;
  std::vector<Tensor> run(std::span<const Tensor> state) const;
  std::vector<Tensor> run_below(std::span<const Tensor> state) const;
  std::vector<Tensor> record(std::span<const Tensor> state) const;
  std::vector<Tensor> transposed(FunctionContext& context, std::span<const Tensor> gradients,
                                 const Probe& probed) const;
  std::vector<Tensor> push(std::span<const Tensor> state, std::span<const Tensor> tangents, const Probe& probed) const;
};

std::vector<Tensor> WhileCall::run_plain(std::vector<Tensor> state) const {
  const std::vector<TensorType> types = types_of(state);
  for (std::uint64_t run = 0;; run += 2) {
    check_stop_of_thread();
    const auto test = [&](std::span<const Tensor> s) { return std::vector{holds(condition, s, where)}; };
    const Tensor running = run_directly(test, state, seed, run)[0];
    const bool differs = differs_in_batch(running);
    if (!any(ordinary_tensor(running)).item<bool>(where)) return state;
    std::vector<Tensor> next = run_directly(body, state, seed, run + 1);
    require_same_state(types, types_of(next), where);
    state = differs ? keep_finished(running, std::move(next), state, where) : std::move(next);
  }
}

/// How the last state changes with the first one and with what the body mentions: the loop with tangents in its state.
std::vector<Tensor> WhileCall::push(std::span<const Tensor> state, std::span<const Tensor> tangents,
                                    const Probe& probed) const {
  const std::size_t count = state.size();
  std::vector<Tensor> both(state.begin(), state.end());
  std::vector<Tensor> along;  // of the others: the same in every run
  std::size_t next = 0;
  for (const Tensor& s : state) {
    if (!is_inexact(s.dtype())) continue;
    both.push_back(tangents[next].defined() ? tangents[next] : zeros_of(type_of(s), s, where));
    ++next;
  }
  for (; next < tangents.size(); ++next) along.push_back(tangents[next]);
  const auto pushed = [f = body, count, along, others = probed.others, line = where](std::span<const Tensor> given) {
    FunctionTape tape(line);
    std::vector<Tensor> marked, directions;
    std::size_t at = count;
    for (const Tensor& s : given.first(count)) {
      marked.push_back(tape.mark(s));
      directions.push_back(is_inexact(s.dtype()) ? given[at++] : Tensor());
    }
    tape.finish(f(marked));
    directions.insert(directions.end(), along.begin(), along.end());
    const Transposition map(tape, others, line);
    const std::vector<Tensor> found = map.push(directions, tape.needs_outer_gradient() && grad_enabled());
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < count; ++i) results.push_back(tape.result(i));
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor& y = tape.recorded_result(i);
      if (is_inexact(y.dtype())) results.push_back(found[i].defined() ? found[i] : zeros_of(type_of(y), y, line));
    }
    return results;
  };
  const auto test = [f = condition, count](std::span<const Tensor> given) { return f(given.first(count)); };
  std::vector<Tensor> last = WhileCall{test, pushed, seed, where}.run(both);
  last.erase(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(count));
  return last;
}

/// Only to be differentiated (Transposition): zeros, whose derivative with respect to the gradients is the pushforward.
std::vector<Tensor> WhileCall::transposed(FunctionContext& context, std::span<const Tensor> gradients,
                                          const Probe& probed) const {
  if (!in_transposition)
    throw GradientError(
        1761,
        format_error(1761, "GradientError",
                     "while_loop: reverse-mode gradients need every state, but the number of iterations is not known",
                     {}, where, "use scan or fori_loop, jvp, or keep the loop out of compile()"));
  const std::vector<Tensor> state = context.saved();
  std::vector<Tensor> zeros, arguments, placed;
  for (const Tensor& s : state) {
    placed.push_back(is_inexact(s.dtype()) ? zeros_of(type_of(s), s, where) : Tensor());
    if (placed.back().defined()) zeros.push_back(placed.back());
  }
  for (const TensorType& type : probed.other_types) zeros.push_back(zeros_of(type, state[0], where));
  for (std::size_t i = 0; i < state.size(); ++i)
    if (is_inexact(state[i].dtype()))
      arguments.push_back(gradients[i].defined() ? gradients[i] : zeros_of(type_of(state[i]), state[i], where));
  const auto again = std::make_shared<FunctionContext>();
  again->save_for_backward(state);
  auto pass = [call = *this, probed](FunctionContext& c, std::span<const Tensor> tangents) {
    return call.push(c.saved(), tangents, probed);
  };
  const VmapLevel level = vmap_frame == nullptr ? VmapLevel{} : vmap_frame->level;
  const std::vector<Tensor> recorded =
      record_custom_backward({"while_loop", arguments, {}, std::move(pass), where}, again, level, std::move(zeros));
  std::size_t next = 0;
  for (Tensor& t : placed)
    if (t.defined()) t = recorded[next++];
  placed.insert(placed.end(), recorded.begin() + static_cast<std::ptrdiff_t>(next), recorded.end());
  return placed;
}

std::vector<Tensor> WhileCall::run(std::span<const Tensor> state) const {
  if (!grad_enabled()) return run_below(state);
  Probe probed = probe(body, state, where);
  require_same_state(types_of(state), probed.results, where);
  if (!probed.depends_on_arguments && probed.others.empty()) return run_below(state);
  // Nothing forbids to look at the condition: the loop is recorded run by run, and so are its gradients.
  if (!in_capture_scope()) return run_plain({state.begin(), state.end()});
  std::vector<Tensor> results = run_below(detach_at_this_level(state));
  const auto context = std::make_shared<FunctionContext>();
  context->save_for_backward(state);
  const VmapLevel level = vmap_frame == nullptr ? VmapLevel{} : vmap_frame->level;
  const std::vector<GradEdge> others = probed.others;
  auto pass = [call = *this, probed = std::move(probed)](FunctionContext& c, std::span<const Tensor> gradients) {
    return call.transposed(c, gradients, probed);
  };
  return record_custom_backward({"while_loop", {state.begin(), state.end()}, others, std::move(pass), where}, context,
                                level, std::move(results));
}

std::vector<Tensor> WhileCall::run_below(std::span<const Tensor> state) const {
  if (vmap_frame == nullptr) return record(state);
  const VmapFrame& frame = *vmap_frame;
  std::vector<Tensor> below;
  for (const Tensor& t : state) below.push_back(with_batch_below(t, frame.level));
  const std::vector<bool> batched(state.size(), true);
  const TensorFunction test = below_level(condition, batched), next = below_level(body, batched);
  const auto some = [test](std::span<const Tensor> s) { return std::vector{any(test(s)[0])}; };
  const auto masked = [test, next, line = where](std::span<const Tensor> s) {
    return keep_finished(test(s)[0], next(s), s, line);
  };
  std::vector<Tensor> results;
  {
    const InsideLevel outside(frame.outer);
    results = WhileCall{some, masked, seed, where}.run(below);
  }
  for (Tensor& t : results) t = make_batched(same_value(t), frame.level, true);
  return results;
}

std::vector<Tensor> WhileCall::record(std::span<const Tensor> state) const {
  const std::vector<TensorType> types = types_of(state);
  const BackendKey backend = backend_of(state);
  const auto test = [this](std::span<const Tensor> s) { return std::vector{holds(condition, s, where)}; };
  auto tested = std::make_unique<CapturedFunction>(test, types, backend, "while_loop", where);
  auto stepped = std::make_unique<CapturedFunction>(body, types, backend, "while_loop", where);
  require_same_state(types, stepped->results(), where);
  return ControlCall::while_loop(std::move(tested), std::move(stepped), state, {}, seed).record(where);
}

}  // namespace

std::vector<Tensor> detail::while_flat(const TensorFunction& condition, const TensorFunction& body,
                                       const std::vector<Tensor>& state, Location where) try {
  for (const Tensor& x : state) require_defined("while_loop", x, where);
  const WhileCall call{condition, body, draw_seed(where), where};
  return is_plain() || state.empty() ? call.run_plain(state) : call.run(state);
} catch (const std::bad_alloc&) { throw_no_memory("while_loop", where); }

}  // namespace fermata

// Custom operators under the Batched key: without a batching rule they run once for every element of the batch. stats()
// counts these calls.
#include <fmt/format.h>

#include <algorithm>

#include "dispatch/schema.h"
#include "dispatch/value.h"
#include "fermata/library.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

void require_no_writes(const Call& call) {
  const Schema* schema = call.entry.schema.load(std::memory_order_acquire);
  if (schema != nullptr && schema->writes())
    throw UnsupportedError(
        2742, format_error(2742, "UnsupportedError",
                           fmt::format("{}: writes an argument in place inside vmap", call.entry.name), {}, call.where,
                           "use an operator that returns the new value"));
}

[[noreturn]] void throw_empty(const Call& call) {
  throw UnsupportedError(
      2741, format_error(2741, "UnsupportedError",
                         fmt::format("{}: vmap of a custom operator over an empty batch", call.entry.name), {},
                         call.where, "its result type is known only by running it"));
}

/// Element i of what is batched at this level.
Tensor element(const Tensor& t, unsigned depth, std::int64_t i) {
  if (depth_of(t) != depth) return t;
  const BatchedTensor& b = batched_tensor(t);
  if (!b.batched) return b.physical;
  Shape starts, steps, counts = b.physical.shape();
  for (unsigned axis = 0; axis < counts.rank(); ++axis) starts.push_back(0), steps.push_back(1);
  starts[0] = i, counts[0] = 1;
  return vjp::squeeze(vjp::slice(b.physical, starts, steps, counts), 1).tensor();
}

/// The n-th tensor of every stack, one after another.
Tensor stacked(std::vector<std::vector<Tensor>>& results, std::size_t n) {
  std::vector<vjp::VjpTensor> parts;
  for (const std::vector<Tensor>& one : results) parts.push_back(vjp::expand_dims(one[n], 1));
  return vjp::concat(parts, 0).tensor();
}

}  // namespace

void redispatch_below_autograd(const Call& call, Stack& stack) {
  if (std::ranges::none_of(tensors_of(stack), is_batched))
    return redispatch_boxed(call, Functionality::autograd, stack);
  const Call again{call.entry, call.keys.below(Functionality::autograd) | Functionality::batched, call.where};
  redispatch_boxed(again, Functionality::user1, stack);
}

bool has_history_below(const Tensor& t) {
  for (Tensor below = t; is_batched(below);) {
    below = Tensor(batched_tensor(below).physical);
    if (below.keys().has(Functionality::autograd)) return true;
  }
  return false;
}

namespace {

/// The level that a call is batched over. Null where the call has been made: below Batched, as nothing is batched, or
/// by the Autograd kernel, which sends it back without histories.
const VmapFrame* level_to_run(const Call& call, Stack& stack) {
  unsigned depth = 0;
  for (const Tensor& t : tensors_of(stack)) depth = std::max(depth, depth_of(t));
  if (depth == 0) {
    redispatch_boxed(call, Functionality::batched, stack);
    return nullptr;
  }
  const VmapFrame* frame = nullptr;
  bool has_history = false;
  for (const Tensor& t : tensors_of(stack)) {
    if (depth_of(t) != depth) continue;
    frame = &frame_of(batched_tensor(t), call.where);
    has_history = has_history || t.keys().has(Functionality::autograd);
  }
  if (has_history && call.keys.has(Functionality::autograd)) {
    const Call to_gradient{call.entry, call.keys - DispatchKeySet(Functionality::tracer), call.where};
    redispatch_boxed(to_gradient, Functionality::batched, stack);
    return nullptr;
  }
  require_no_writes(call);
  return frame;
}

}  // namespace

std::function<void(const Call&, Stack&)> batching_rule(
    std::function<std::vector<Tensor>(const BatchedArguments&)> rule) {
  return [rule = std::move(rule)](const Call& call, Stack& stack) {
    const VmapFrame* frame = level_to_run(call, stack);
    if (frame == nullptr) return;
    const unsigned depth = frame->level.depth;
    BatchedArguments arguments{stack, {}, frame->level.size};
    for (Value& value : arguments.arguments)
      value.for_each_tensor([&](Tensor& t) {
        if (!t.defined()) return;
        const bool wrapped = depth_of(t) == depth;
        arguments.batched.push_back(wrapped && batched_tensor(t).batched);
        if (wrapped) t = same_value(batched_tensor(t).physical);
      });
    const InsideLevel below(frame->outer);
    stack.clear();
    for (const Tensor& result : rule(arguments)) {
      if (result.rank() == 0 || result.size(0) != frame->level.size)
        throw ShapeError(
            1031, format_error(1031, "ShapeError",
                               fmt::format("{}: a result of the batching rule does not have the batch of {} as axis 0",
                                           call.entry.name, frame->level.size),
                               {{"x", to_string(result.dtype(), result.shape()), ""}}, call.where));
      stack.emplace_back(make_batched(same_value(result), frame->level, true));
    }
  };
}

void batched_boxed(const Call& call, Stack& stack) {
  const VmapFrame* frame = level_to_run(call, stack);
  if (frame == nullptr) return;
  const unsigned depth = frame->level.depth;
  if (frame->level.size == 0) throw_empty(call);
  counters.vmap_loops.fetch_add(1, std::memory_order_relaxed);
  const InsideLevel below(frame->outer);
  const vjp::LineGuard line(call.where);
  std::vector<std::vector<Tensor>> results;
  Stack last;
  for (std::int64_t i = 0; i < frame->level.size; ++i) {
    last = stack;
    for (Value& value : last)
      value.for_each_tensor([&](Tensor& t) {
        if (t.defined()) t = element(t, depth, i);
      });
    call_boxed(call.entry, last, call.where);
    results.push_back(tensors_of(last));
  }
  stack = std::move(last);
  std::size_t n = 0;
  for (Value& value : stack)
    value.for_each_tensor([&](Tensor& t) {
      if (t.defined()) t = make_batched(stacked(results, n++), frame->level, true);
    });
}

}  // namespace fermata

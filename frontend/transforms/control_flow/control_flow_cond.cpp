// cond: see fermata/control_flow.h.
#include "fermata/control_flow.h"

#include <algorithm>

#include "fermata/ops.h"
#include "fermata/values.h"
#include "frontend/engine/control_step.h"
#include "frontend/engine/no_memory.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "frontend/transforms/control_flow/control_flow_parts.h"

namespace fermata {
namespace {

using namespace control;

struct CondCall {
  Tensor predicate;  // an ordinary bool of no axes
  TensorFunction when_true, when_false;
  Tensor seed;
  Location where;

  std::vector<Tensor> run(std::span<const Tensor> operands) const;
  std::vector<Tensor> run_below(std::span<const Tensor> operands) const;
  std::vector<Tensor> record(std::span<const Tensor> operands) const;
  std::vector<Tensor> backward(FunctionContext& context, std::span<const Tensor> gradients, const Probe& probed,
                               const SavedFrame& frame) const;
};

/// A branch of the backward pass: takes the operands and the gradients of the floating results.
TensorFunction pulled_back(const TensorFunction& f, std::size_t operands, std::vector<TensorType> results,
                           const Pull& pull, Location where) {
  return [f, operands, results = std::move(results), pull, where](std::span<const Tensor> given) {
    FunctionTape tape(where);
    std::vector<Tensor> marked, gradients;
    for (const Tensor& x : given.first(operands)) marked.push_back(tape.mark(x));
    tape.finish(f(marked));
    std::size_t next = operands;
    for (const TensorType& type : results) gradients.push_back(is_inexact(type.dtype) ? given[next++] : Tensor());
    return pull(tape, gradients);
  };
}

std::vector<Tensor> CondCall::backward(FunctionContext& context, std::span<const Tensor> gradients, const Probe& probed,
                                       const SavedFrame& frame) const {
  const std::vector<Tensor> saved = context.saved();
  const std::vector<TensorType> types = types_of(saved);
  std::vector<Tensor> given = floating_gradients(gradients, probed.results, predicate, where);
  std::size_t floating = probed.others.size();
  for (const TensorType& type : types) floating += is_inexact(type.dtype) ? 1 : 0;
  const auto call = [&](std::span<const Tensor> below, const Pull& pull) {
    const CondCall transposed{predicate, pulled_back(when_true, saved.size(), probed.results, pull, where),
                              pulled_back(when_false, saved.size(), probed.results, pull, where), seed, where};
    std::vector<Tensor> operands = saved;
    operands.insert(operands.end(), below.begin(), below.end());
    return transposed.run(operands);
  };
  const std::vector<bool> plain_in(given.size()), plain_out(floating);
  const std::vector<Tensor> found =
      at_recorded_level(frame, std::move(given), make_pull(types, probed, where), plain_in, plain_out, call);
  std::vector<Tensor> result;
  std::size_t next = 0;
  for (const TensorType& type : types) result.push_back(is_inexact(type.dtype) ? found[next++] : Tensor());
  result.insert(result.end(), found.begin() + static_cast<std::ptrdiff_t>(next), found.end());
  return result;
}

std::vector<Tensor> CondCall::run(std::span<const Tensor> operands) const {
  if (!grad_enabled()) return run_below(operands);
  Probe probed = probe(when_true, operands, where);
  const Probe other = probe(when_false, operands, where);
  require_same_types(1762, "cond: the functions return different results", "true", probed.results, "false",
                     other.results, where);
  merge_captures(probed, other);
  if (probed.results.empty() || (!probed.depends_on_arguments && probed.others.empty())) return run_below(operands);
  const std::vector<Tensor> plain = detach_at_this_level(operands);
  std::vector<Tensor> results = run_below(plain);
  const auto context = std::make_shared<FunctionContext>();
  context->save_for_backward(operands);
  const auto frame = std::make_shared<SavedFrame>(vmap_frame);
  const VmapLevel level = vmap_frame == nullptr ? VmapLevel{} : vmap_frame->level;
  const std::vector<GradEdge> others = probed.others;
  auto pass = [call = *this, probed = std::move(probed), frame](FunctionContext& c, std::span<const Tensor> gradients) {
    return call.backward(c, gradients, probed, *frame);
  };
  return record_custom_backward({"cond", {operands.begin(), operands.end()}, others, std::move(pass), where}, context,
                                level, std::move(results));
}

std::vector<Tensor> CondCall::run_below(std::span<const Tensor> operands) const {
  if (vmap_frame == nullptr) return record(operands);
  const VmapFrame& frame = *vmap_frame;
  const BelowWrappers below(operands, frame.level);
  const CondCall lowered{predicate, below_level(when_true, below.batched), below_level(when_false, below.batched), seed,
                         where};
  std::vector<Tensor> results;
  {
    const InsideLevel outside(frame.outer);
    results = lowered.run(below.tensors);
  }
  for (Tensor& t : results) t = make_batched(same_value(t), frame.level, true);
  return results;
}

std::vector<Tensor> CondCall::record(std::span<const Tensor> operands) const {
  const std::vector<TensorType> types = types_of(operands);
  const BackendKey backend = backend_of(operands);
  auto first = std::make_unique<CapturedFunction>(when_true, types, backend, "cond", where);
  auto second = std::make_unique<CapturedFunction>(when_false, types, backend, "cond", where);
  require_same_types(1762, "cond: the functions return different results", "true", first->results(), "false",
                     second->results(), where);
  if (first->results().empty()) return {};
  return ControlCall::cond(predicate, std::move(first), std::move(second), operands, seed).record(where);
}

/// Both, and `where` for each result.
std::vector<Tensor> choose(const Tensor& predicate, const TensorFunction& when_true, const TensorFunction& when_false,
                           const std::vector<Tensor>& operands, Location where) {
  std::vector<Tensor> first = when_true(operands);
  const std::vector<Tensor> second = when_false(operands);
  require_same_types(1762, "cond: the functions return different results", "true", types_of(first), "false",
                     types_of(second), where);
  const vjp::LineGuard line(where);
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = vjp::where(predicate, first[i], second[i]).tensor();
  return first;
}

}  // namespace

std::vector<Tensor> detail::cond_flat(const Operand& predicate, const TensorFunction& when_true,
                                      const TensorFunction& when_false, const std::vector<Tensor>& operands) try {
  const Location where = predicate.where();
  for (const Tensor& x : operands) require_defined("cond", x, where);
  if (!predicate.is_tensor()) return predicate.scalar().as_double() != 0 ? when_true(operands) : when_false(operands);
  Tensor chosen = one_bool("cond", predicate.tensor(), where);
  if (differs_in_batch(chosen)) return choose(chosen, when_true, when_false, operands, where);
  chosen = ordinary_tensor(chosen);
  const Tensor seed = draw_seed(where);
  if (is_plain()) return run_directly(chosen.item<bool>(where) ? when_true : when_false, operands, seed, 0);
  return CondCall{chosen, when_true, when_false, seed, where}.run(operands);
} catch (const std::bad_alloc&) { throw_no_memory("cond", predicate.where()); }

}  // namespace fermata

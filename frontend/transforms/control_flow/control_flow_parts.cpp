// See control_flow_parts.h.
#include "frontend/transforms/control_flow/control_flow_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "fermata/modes.h"
#include "fermata/ops.h"
#include "fermata/random.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/engine/function_recording.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "frontend/transforms/trace/tracer.h"
#include "ir/error.h"

namespace fermata::control {

bool is_plain() { return mode() == Mode::eager || tracing(); }

Tensor draw_seed(Location where) {
  const InsideLevel outside(nullptr);
  return rand({}, DType::f64, where);
}

std::vector<Tensor> run_directly(const TensorFunction& f, std::span<const Tensor> arguments, const Tensor& seed,
                                 std::uint64_t run) {
  const GeneratorScope draws{Generator(stream_key(seed.item<double>(), run))};
  return f(arguments);
}

unsigned current_depth() { return vmap_frame == nullptr ? 0 : vmap_frame->level.depth; }

std::vector<TensorType> types_of(std::span<const Tensor> tensors) {
  std::vector<TensorType> types;
  for (const Tensor& t : tensors) types.push_back(type_of(t));
  return types;
}

BackendKey backend_of(std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (t.node()->backend != BackendKey::cpu) return t.node()->backend;
  return BackendKey::cpu;
}

Tensor zeros_of(const TensorType& type, const Tensor& like, Location where) {
  const vjp::LineGuard line(where);
  return vjp::full(0, type, like).tensor();
}

void require_same_types(int code, std::string_view headline, std::string_view first, std::span<const TensorType> a,
                        std::string_view second, std::span<const TensorType> b, Location where) {
  const auto fail = [&](const std::string& what, std::vector<ErrorOperand> lines) {
    throw ShapeError(code, format_error(code, "ShapeError", what, std::move(lines), where));
  };
  if (a.size() != b.size()) fail(fmt::format("{}: {} tensors and {}", headline, a.size(), b.size()), {});
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i])
      fail(fmt::format("{}, tensor {}", headline, i),
           {{first, to_string(a[i].dtype, a[i].shape), ""}, {second, to_string(b[i].dtype, b[i].shape), ""}});
}

Tensor one_bool(std::string_view function, const Tensor& predicate, Location where) {
  require_defined(function, predicate, where);
  if (predicate.dtype() != DType::boolean || predicate.element_count() != 1)
    throw ValueError(1764, format_error(1764, "ValueError", fmt::format("{}: the predicate is not one bool", function),
                                        {{"x", to_string(predicate.dtype(), predicate.shape()), ""}}, where,
                                        "reduce it with any() or all()"));
  return predicate.rank() == 0 ? predicate : reshape(predicate, {}, where);
}

Probe probe(const TensorFunction& f, std::span<const Tensor> samples, Location where) {
  CaptureScope scope(CaptureScope::Of::control_flow);
  const RecordingGuards guards(scope, Generator(0));
  FunctionTape tape(where);
  std::vector<Tensor> marked;
  for (const Tensor& x : samples) marked.push_back(tape.mark(x));
  const std::vector<Tensor> ys = f(marked);
  for (const Tensor& y : ys) require_defined("control flow", y, where);
  tape.finish(ys);
  Probe found{types_of(ys), false, tape.outside(), {}};
  for (const GradEdge& mark : tape.marks())
    found.depends_on_arguments = found.depends_on_arguments || (mark && mark->operands()[0].edge);
  if (found.others.empty()) return found;
  std::vector<Tensor> seeds;
  for (const Tensor& y : ys) seeds.push_back(is_inexact(y.dtype()) ? zeros_of(type_of(y), y, where) : Tensor());
  const TranspositionScope anything_goes;
  const std::vector<Tensor> gradients = tape.pull(seeds, found.others, false);
  std::vector<GradEdge> reached;
  for (std::size_t i = 0; i < found.others.size(); ++i) {
    const Tensor& g = gradients[samples.size() + i];
    if (g.defined()) reached.push_back(found.others[i]), found.other_types.push_back(type_of(g));
  }
  found.others = std::move(reached);
  return found;
}

void merge_captures(Probe& into, const Probe& more) {
  for (std::size_t i = 0; i < more.others.size(); ++i)
    if (std::ranges::find(into.others, more.others[i]) == into.others.end())
      into.others.push_back(more.others[i]), into.other_types.push_back(more.other_types[i]);
}

Pull make_pull(std::vector<TensorType> arguments, const Probe& probed, Location where) {
  return [arguments = std::move(arguments), others = probed.others, other_types = probed.other_types, where,
          transposing = in_transposition](const FunctionTape& tape, std::span<const Tensor> gradients) {
    const TranspositionScope again(transposing);
    const std::vector<Tensor> found = tape.pull(gradients, others, grad_enabled());
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const TensorType& type = i < arguments.size() ? arguments[i] : other_types[i - arguments.size()];
      if (!is_inexact(type.dtype)) continue;
      results.push_back(found[i].defined() ? found[i] : zeros_of(type, tape.recorded_result(0), where));
    }
    return results;
  };
}

Tensor swap_leading_axes(const Tensor& t) {
  std::vector<std::int64_t> axes{1, 0};
  for (unsigned i = 2; i < t.rank(); ++i) axes.push_back(i);
  return vjp::permute(t, axes).tensor();
}

std::vector<Tensor> at_recorded_level(const SavedFrame& recorded, std::vector<Tensor> gradients, const Pull& pull,
                                      const std::vector<bool>& stacked, const std::vector<bool>& stacked_results,
                                      const PulledCall& call) {
  const unsigned depth = recorded.frame() == nullptr ? 0 : recorded.frame()->level.depth;
  const bool batched_further_in = std::ranges::any_of(gradients, [&](const Tensor& g) { return depth_of(g) > depth; });
  if (current_depth() <= depth || !batched_further_in) {
    const InsideLevel inside(recorded.frame());
    return call(gradients, pull);
  }
  const VmapFrame& frame = *vmap_frame;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = with_batch_below(gradients[i], frame.level);
    if (stacked[i]) gradients[i] = swap_leading_axes(gradients[i]);
  }
  const Pull batched = [pull, size = frame.level.size](const FunctionTape& tape, std::span<const Tensor> below) {
    const VmapFrame again{new_level(size), vmap_frame};
    std::vector<Tensor> inside;
    for (const Tensor& g : below) inside.push_back(g.defined() ? make_batched(same_value(g), again.level, true) : g);
    {
      const InsideLevel level(&again);
      inside = pull(tape, inside);
    }
    for (Tensor& g : inside) g = with_batch_below(g, again.level);
    return inside;
  };
  std::vector<Tensor> results;
  {
    const InsideLevel outside(frame.outer);
    results = at_recorded_level(recorded, std::move(gradients), batched, stacked, stacked_results, call);
  }
  for (std::size_t i = 0; i < results.size(); ++i)
    results[i] =
        make_batched(stacked_results[i] ? swap_leading_axes(results[i]) : same_value(results[i]), frame.level, true);
  return results;
}

std::vector<Tensor> detach_at_this_level(std::span<const Tensor> tensors) {
  std::vector<Tensor> plain;
  for (const Tensor& t : tensors) plain.push_back(depth_of(t) == current_depth() ? without_history(t) : t);
  return plain;
}

std::vector<Tensor> floating_gradients(std::span<const Tensor> gradients, std::span<const TensorType> results,
                                       const Tensor& like, Location where) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < results.size(); ++i)
    if (is_inexact(results[i].dtype))
      all.push_back(gradients[i].defined() ? gradients[i] : zeros_of(results[i], like, where));
  return all;
}

}  // namespace fermata::control

// scan: see fermata/control_flow.h.
#include "fermata/control_flow.h"

#include <fmt/format.h>

#include <algorithm>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/views.h"
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
using Tensors = std::vector<Tensor>;
using Types = std::vector<TensorType>;

template <class T> std::vector<T> joined(std::span<const T> a, std::span<const T> b) {
  std::vector<T> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}
Tensors joined(const Tensors& a, const Tensors& b) {
  return joined(std::span<const Tensor>(a), std::span<const Tensor>(b));
}

TensorType stacked_type(const TensorType& one, std::int64_t length) {
  TensorType all{one.dtype, {length}};
  for (const std::int64_t size : one.shape) all.shape.push_back(size);
  return all;
}
TensorType slice_type(const Tensor& sequence) {
  const Shape all = sequence.shape();
  return {sequence.dtype(), Shape(std::span<const std::int64_t>(all).subspan(1))};
}

/// The axes that gradients have beyond what `types` says, where they are batched further in.
Shape batches_of(std::span<const Tensor> gradients, std::span<const TensorType> types, std::size_t carries) {
  Shape batches;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!is_inexact(types[i].dtype)) continue;
    const Shape all = gradients[0].shape();
    const std::size_t front = i < carries ? 0 : 1;
    for (std::size_t k = 0; k < all.rank() - types[i].shape.rank(); ++k) batches.push_back(all[front + k]);
    break;
  }
  return batches;
}

struct ScanCall {
  TensorFunction f;
  std::int64_t length;
  bool reverse;
  Tensor seed;
  Location where;

  Tensors run_plain(Tensors carry, const Tensors& sequences) const;
  Tensors run(const Tensors& init, const Tensors& sequences) const;
  Tensors run_below(const Tensors& init, const Tensors& sequences) const;
  Tensors record(const Tensors& init, const Tensors& sequences) const;
  Tensors backward(FunctionContext& context, std::span<const Tensor> gradients, std::size_t carries, const Types& ys,
                   const Probe& probed, const SavedFrame& frame) const;
  /// One slice of each sequence, or zeros if there are none.
  Tensors sample(const Tensors& sequences) const;
  void require_same_carry(std::span<const Tensor> init, std::span<const TensorType> results) const;
};

Tensors ScanCall::sample(const Tensors& sequences) const {
  Tensors slices;
  for (const Tensor& x : sequences)
    slices.push_back(length > 0 ? select(x, 0, 0, where) : zeros_of(slice_type(x), x, where));
  return slices;
}

void ScanCall::require_same_carry(std::span<const Tensor> init, std::span<const TensorType> results) const {
  const Types before = types_of(init);
  require_same_types(1763, "scan: the function changes the shape or dtype of the carry", "takes", before, "gives",
                     results.first(std::min(before.size(), results.size())), where);
}

Tensors ScanCall::run_plain(Tensors carry, const Tensors& sequences) const {
  const std::size_t carries = carry.size();
  std::vector<Tensors> parts;
  for (std::int64_t step = 0; step < length; ++step) {
    check_stop_of_thread();
    const std::int64_t at = reverse ? length - 1 - step : step;
    Tensors given = carry;
    for (const Tensor& x : sequences) given.push_back(select(x, 0, at, where));
    Tensors results = run_directly(f, given, seed, static_cast<std::uint64_t>(at));
    require_same_carry(carry, types_of(results));
    carry.assign(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(carries));
    parts.resize(results.size() - carries);
    for (std::size_t k = 0; k < parts.size(); ++k) parts[k].push_back(results[carries + k]);
  }
  if (length == 0) {
    Tensors given = carry;
    for (const Tensor& x : sample(sequences)) given.push_back(x);
    const Types types = probe(f, given, where).results;
    for (std::size_t k = carries; k < types.size(); ++k)
      carry.push_back(zeros_of(stacked_type(types[k], 0), given.empty() ? seed : given[0], where));
    return carry;
  }
  for (Tensors& part : parts) {
    if (reverse) std::ranges::reverse(part);
    carry.push_back(stack(part, 0, where));
  }
  return carry;
}

/// Gradients arrive for the last carry, the ys and, as they are results too, the carries before each step.
Tensors ScanCall::backward(FunctionContext& context, std::span<const Tensor> gradients, std::size_t carries,
                           const Types& ys, const Probe& probed, const SavedFrame& frame) const {
  // Saved: the sequences, then the carries before each step.
  const Tensors saved = context.saved();
  const std::size_t sequences = saved.size() - carries;
  const Tensor& like =
      saved.empty() ? seed : saved.back();  // on the device that the loop runs on: a carry, if there is one
  Types arguments, results;                 // of one step
  for (std::size_t i = 0; i < carries; ++i) arguments.push_back(slice_type(saved[sequences + i]));
  results = arguments;
  for (std::size_t i = 0; i < sequences; ++i) arguments.push_back(slice_type(saved[i]));
  for (const TensorType& type : ys) results.push_back(type);
  const auto is_float = [](const TensorType& t) { return is_inexact(t.dtype); };
  const auto floats = [&](std::span<const TensorType> types) {
    return static_cast<std::size_t>(std::ranges::count_if(types, is_float));
  };
  const std::size_t float_carries = floats(std::span(arguments).first(carries)), float_ys = floats(ys),
                    others = probed.others.size(), float_sequences = floats(std::span(arguments).subspan(carries));
  Types given_types(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(carries));
  for (const TensorType& type : ys) given_types.push_back(stacked_type(type, length));
  for (std::size_t i = 0; i < carries; ++i) given_types.push_back(stacked_type(arguments[i], length));
  Tensors given = floating_gradients(gradients, given_types, like, where);
  std::vector<bool> stacked(given.size(), true), stacked_results(float_carries + others + float_sequences, false);
  std::fill_n(stacked.begin(), float_carries, false);
  std::fill(stacked_results.begin() + static_cast<std::ptrdiff_t>(float_carries + others), stacked_results.end(), true);

  const auto call = [&](std::span<const Tensor> below, const Pull& pull) {
    // Carried: the gradient of the carry, and those of the others so far.
    const auto step = [f = f, carries, sequences, float_carries, float_ys, others, results, pull,
                       line = where](std::span<const Tensor> in) {
      const std::span<const Tensor> of_carry = in.first(float_carries), of_others = in.subspan(float_carries, others),
                                    xs = in.subspan(float_carries + others, sequences),
                                    cs = in.subspan(float_carries + others + sequences, carries),
                                    of_ys = in.subspan(float_carries + others + sequences + carries, float_ys),
                                    of_cs = in.last(float_carries);
      FunctionTape tape(line);
      Tensors marked, arriving;
      for (const Tensor& c : cs) marked.push_back(tape.mark(c));
      for (const Tensor& x : xs) marked.push_back(tape.mark(x));
      tape.finish(f(marked));
      std::size_t carry = 0, y = 0;
      for (std::size_t i = 0; i < results.size(); ++i) {
        const bool floating = is_inexact(results[i].dtype);
        arriving.push_back(!floating ? Tensor() : i < carries ? of_carry[carry++] : of_ys[y++]);
      }
      const Tensors found = pull(tape, arriving);  // carries, sequences, others
      const std::size_t first_other = found.size() - others;
      const vjp::LineGuard guard(line);
      Tensors out;
      for (std::size_t i = 0; i < float_carries; ++i) out.push_back(vjp::add(found[i], of_cs[i]).tensor());
      for (std::size_t i = 0; i < others; ++i) out.push_back(vjp::add(of_others[i], found[first_other + i]).tensor());
      out.insert(out.end(), found.begin() + static_cast<std::ptrdiff_t>(float_carries),
                 found.begin() + static_cast<std::ptrdiff_t>(first_other));
      return out;
    };
    Tensors init(below.begin(), below.begin() + static_cast<std::ptrdiff_t>(float_carries));
    for (std::size_t i = 0; i < others; ++i) {
      // With the batches that the gradients have in front.
      TensorType type{probed.other_types[i].dtype, batches_of(below, given_types, carries)};
      for (const std::int64_t size : probed.other_types[i].shape) type.shape.push_back(size);
      init.push_back(zeros_of(type, like, where));
    }
    Tensors over = saved;
    over.insert(over.end(), below.begin() + static_cast<std::ptrdiff_t>(float_carries), below.end());
    return ScanCall{step, length, !reverse, seed, where}.run(init, over);
  };
  const Tensors found =
      at_recorded_level(frame, std::move(given), make_pull(arguments, probed, where), stacked, stacked_results, call);
  Tensors out;
  std::size_t carry = 0, sequence = float_carries + others;
  for (std::size_t i = 0; i < carries; ++i) out.push_back(is_float(arguments[i]) ? found[carry++] : Tensor());
  for (std::size_t i = 0; i < sequences; ++i)
    out.push_back(is_float(arguments[carries + i]) ? found[sequence++] : Tensor());
  for (std::size_t i = 0; i < others; ++i) out.push_back(found[float_carries + i]);
  return out;
}

Tensors ScanCall::run(const Tensors& init, const Tensors& sequences) const {
  if (!grad_enabled()) return run_below(init, sequences);
  const Tensors samples = joined(init, sample(sequences));
  Probe probed = probe(f, samples, where);
  require_same_carry(init, probed.results);
  if (!probed.depends_on_arguments && probed.others.empty()) return run_below(init, sequences);
  const std::size_t carries = init.size();
  const auto keeping = [f = f, carries](std::span<const Tensor> given) {
    Tensors results = f(given);
    results.insert(results.end(), given.begin(), given.begin() + static_cast<std::ptrdiff_t>(carries));
    return results;
  };
  const ScanCall kept{keeping, length, reverse, seed, where};
  Tensors results = kept.run_below(detach_at_this_level(init), detach_at_this_level(sequences));
  Types ys(probed.results.begin() + static_cast<std::ptrdiff_t>(carries), probed.results.end());
  const auto context = std::make_shared<FunctionContext>();
  context->save_for_backward(sequences);
  context->save_for_backward(std::span(results).last(carries));
  const auto frame = std::make_shared<SavedFrame>(vmap_frame);
  const VmapLevel level = vmap_frame == nullptr ? VmapLevel{} : vmap_frame->level;
  const std::vector<GradEdge> others = probed.others;
  auto pass = [call = *this, carries, ys = std::move(ys), probed = std::move(probed), frame](
                  FunctionContext& c, std::span<const Tensor> gradients) {
    return call.backward(c, gradients, carries, ys, probed, *frame);
  };
  results = record_custom_backward({"scan", joined(init, sequences), others, std::move(pass), where}, context, level,
                                   std::move(results));
  results.resize(results.size() - carries);
  return results;
}

Tensors ScanCall::run_below(const Tensors& init, const Tensors& sequences) const {
  if (vmap_frame == nullptr) return record(init, sequences);
  const VmapFrame& frame = *vmap_frame;
  Tensors carry;
  for (const Tensor& t : init) carry.push_back(with_batch_below(t, frame.level));
  BelowWrappers below(sequences, frame.level);
  for (std::size_t i = 0; i < sequences.size(); ++i)
    if (below.batched[i]) below.tensors[i] = swap_leading_axes(below.tensors[i]);
  std::vector<bool> batched(init.size(), true);
  batched.insert(batched.end(), below.batched.begin(), below.batched.end());
  Tensors results;
  {
    const TensorFunction lowered = below_level(f, batched);
    const InsideLevel outside(frame.outer);
    results = ScanCall{lowered, length, reverse, seed, where}.run(carry, below.tensors);
  }
  for (std::size_t i = 0; i < results.size(); ++i)
    results[i] =
        make_batched(i < init.size() ? same_value(results[i]) : swap_leading_axes(results[i]), frame.level, true);
  return results;
}

Tensors ScanCall::record(const Tensors& init, const Tensors& sequences) const {
  Types types = types_of(init);
  for (const Tensor& x : sequences) types.push_back(slice_type(x));
  auto body = std::make_unique<CapturedFunction>(f, types, backend_of(joined(init, sequences)), "scan", where);
  require_same_carry(init, body->results());
  if (body->results().empty()) return {};
  return ControlCall::scan(std::move(body), init, sequences, {}, length, reverse, seed).record(where);
}

}  // namespace

std::vector<Tensor> detail::scan_flat(const TensorFunction& f, const std::vector<Tensor>& init,
                                      const std::vector<Tensor>& sequences, bool reverse, Location where) try {
  for (const Tensor& x : init) require_defined("scan", x, where);
  for (const Tensor& x : sequences) require_defined("scan", x, where);
  if (sequences.empty())
    throw ShapeError(
        1765, format_error(1765, "ShapeError", "scan: xs has no tensors", {}, where, "use fori_loop for a count"));
  for (const Tensor& x : sequences)
    if (x.rank() == 0 || x.size(0) != sequences[0].size(0))
      throw ShapeError(1765, format_error(1765, "ShapeError", "scan: sequences of different lengths",
                                          {{"first", to_string(sequences[0].dtype(), sequences[0].shape()), ""},
                                           {"other", to_string(x.dtype(), x.shape()), ""}},
                                          where));
  const ScanCall call{f, sequences[0].size(0), reverse, draw_seed(where), where};
  return is_plain() ? call.run_plain(init, sequences) : call.run(init, sequences);
} catch (const std::bad_alloc&) { throw_no_memory("scan", where); }

}  // namespace fermata

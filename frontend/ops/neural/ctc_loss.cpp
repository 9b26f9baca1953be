// ctc_loss: the probability of all alignments, a step of time after the other; see fermata/losses.h.
//
// State s of 2 S + 1 is a label where s is odd, else a blank. The loop carries the logarithms of the probabilities of
// all states; where a length is shorter, they stay as they are. Graves et al., "Connectionist temporal classification",
// ICML 2006, section 4.1.
#include <fmt/format.h>

#include <limits>

#include "fermata/control_flow.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/losses.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/loss_parts.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// The logarithm of nothing: finite, so that derivatives of differences are numbers.
constexpr double kNever = -1e30;

/// log(exp(a) + exp(b) + exp(c)).
VjpTensor log_sum(const VjpTensor& a, const VjpTensor& b, const VjpTensor& c) {
  const VjpTensor most = vjp::maximum(vjp::maximum(a, b), c).tensor().detach();
  return most + vjp::log(vjp::exp(a - most) + vjp::exp(b - most) + vjp::exp(c - most));
}
/// States [N, L] moved on by some, with nothing in front.
VjpTensor moved(const VjpTensor& states, std::int64_t by, Location where) {
  const std::int64_t n = states.shape()[0], length = states.shape()[1];
  if (length <= by) return states * 0 + kNever;
  const VjpTensor none = vjp::full(kNever, {states.dtype(), Shape{n, by}}, states);
  const std::array parts{none, VjpTensor(slice(states.tensor(), 1, 0, length - by, 1, where))};
  return vjp::concat(parts, 1);
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcOptions& o, Location where) {
  const LossScope in("ctc_loss", {&log_probs}, where);
  for (const Tensor* t : {&targets, &input_lengths, &target_lengths}) require_defined("ctc_loss", *t, where);
  const bool alone = log_probs.rank() == 2;
  const auto batched = [&](const Tensor& x, std::int64_t axis) { return alone ? expand_dims(x, axis, where) : x; };
  const auto is_batch = [&](const Tensor& x, unsigned rank) { return x.rank() == rank - (alone ? 1 : 0); };
  const std::vector<ErrorOperand> lines{{"x", to_string(log_probs.dtype(), log_probs.shape()), ""},
                                        {"targets", to_string(targets.dtype(), targets.shape()), ""}};
  const bool fits = (alone || log_probs.rank() == 3) && is_batch(targets, 2) && is_batch(input_lengths, 1) &&
                    is_batch(target_lengths, 1);
  const std::int64_t n = !fits ? 0 : alone ? 1 : log_probs.size(1);
  if (!fits || log_probs.size(0) == 0 ||
      (!alone && (targets.size(0) != n || input_lengths.size(0) != n || target_lengths.size(0) != n)))
    throw ShapeError(
        1022, format_error(1022, "ShapeError",
                           "ctc_loss: expected log_probs [T, N, C], targets [N, S] and lengths [N], or all without N",
                           lines, where));
  for (const Tensor* t : {&targets, &input_lengths, &target_lengths})
    if (!is_integer(t->dtype()))
      throw DTypeError(1107,
                       format_error(1107, "DTypeError", "ctc_loss: labels and lengths must be integers", lines, where));
  const std::int64_t steps = log_probs.size(0), classes = log_probs.size(-1), labels = targets.size(-1);
  if (o.blank < 0 || o.blank >= classes) fail_parameter("ctc_loss", "the blank is not a class", where);

  const VjpTensor probs = batched(in(log_probs).tensor(), 1), label = batched(astype(targets, DType::i64, where), 0);
  const VjpTensor times = expand_dims(batched(astype(input_lengths, DType::i64, where), 0), 1, where);
  const VjpTensor lengths = expand_dims(batched(astype(target_lengths, DType::i64, where), 0), 1, where);
  const std::int64_t states = 2 * labels + 1;
  // Which class each state emits: [N, states]. Labels beyond their length may be anything.
  const VjpTensor s = vjp::iota({states}, 0, probs), is_label = vjp::equal(vjp::remainder(s, 2), 1);
  VjpTensor emits = vjp::full(static_cast<double>(o.blank), {DType::i64, Shape{n, states}}, probs);
  VjpTensor may_skip = vjp::full(0, {DType::boolean, Shape{n, states}}, probs);
  if (labels > 0) {
    const VjpTensor number = vjp::minimum(vjp::floor_divide(s, 2), labels - 1);
    const VjpTensor own = vjp::take(label, number, 1);
    const VjpTensor counts = vjp::logical_and(is_label, number < lengths);
    emits = vjp::where(counts, own, o.blank);
    const VjpTensor before = vjp::take(label, vjp::maximum(number - 1, 0), 1);
    may_skip = vjp::logical_and(vjp::logical_and(counts, number > 0), vjp::not_equal(own, before));
  }
  const Tensor emitted = emits.tensor(), skips = may_skip.tensor();
  const VjpTensor first_row = gather(select(probs.tensor(), 0, 0, where), emitted, 1, where);
  const VjpTensor starts =
      vjp::where(vjp::logical_or(vjp::equal(s, 0), vjp::logical_and(vjp::equal(s, 1), lengths > 0)), first_row, kNever);
  const Tensor until = times.tensor();
  const auto step = [=](const Tensor& states_before, const std::tuple<Tensor, Tensor>& now) {
    const vjp::LineGuard line(where);
    const auto& [row, t] = now;
    const VjpTensor a = states_before, skipped = vjp::where(skips, moved(a, 2, where), kNever);
    const VjpTensor reached = log_sum(a, moved(a, 1, where), skipped) + VjpTensor(gather(row, emitted, 1, where));
    return std::pair<Tensor, std::tuple<>>(vjp::where(VjpTensor(t) < until, vjp::maximum(reached, kNever), a).tensor(),
                                           {});
  };
  Tensor last = starts.tensor();
  if (steps > 1)
    last = scan(step, last,
                std::tuple(slice(probs.tensor(), 0, 1, kNone, 1, where), iota({steps - 1}, 0, device(last), where) + 1),
                false, where)
               .first;
  // The last label and the blank after it.
  const VjpTensor ends = vjp::logical_or(vjp::equal(s, 2 * lengths), vjp::equal(s, 2 * lengths - 1));
  const VjpTensor at_end = vjp::where(ends, last, kNever);
  const VjpTensor most = max(at_end.tensor(), 1, true, where).detach();
  VjpTensor loss = -(most + vjp::log(VjpTensor(sum(vjp::exp(at_end - most).tensor(), 1, true, where))));
  loss = vjp::squeeze(loss, 1u << 1);
  const VjpTensor impossible = loss > -kNever / 2;
  loss = vjp::where(impossible, o.zero_infinity ? 0.0 : std::numeric_limits<double>::infinity(), loss);
  if (o.reduction == LossReduction::mean)
    loss = loss / vjp::cast(vjp::maximum(vjp::squeeze(lengths, 1u << 1), 1), loss.dtype());
  if (alone) loss = vjp::squeeze(loss, 1);
  return in.reduced(loss, o.reduction);
}

}  // namespace fermata

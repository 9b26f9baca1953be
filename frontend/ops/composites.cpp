// The kernels of the composite ops: each calls public functions, so that its parts are recorded, fused and
// differentiated like anything a user writes. See fermata/composites.h and fermata/reductions.h.
#include "fermata/composites.h"

#include <fmt/format.h>

#include <bit>
#include <limits>

#include "dispatch/kernel_table.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/engine/startup.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using Tensors = std::span<const Tensor>;

// Attributes; mean, var and logsumexp have those of reductions.
struct Along {
  Structure<Axis> axis;
};
struct Normalization {
  Structure<bool> has_weight, has_bias;  // operands after x, in this order
  HostScalar eps;
};

Shape reduced_axes(const Attributes& a) {
  Shape axes;
  const auto mask = attributes_of<ops::Reduction>(a).axes.value;
  for (unsigned i = 0; mask >> i != 0; ++i)
    if ((mask >> i & 1) != 0) axes.push_back(i);
  return axes;
}
bool keeps_axes(const Attributes& a) { return attributes_of<ops::Reduction>(a).keepdims.value; }
std::int64_t axis_of(const Attributes& a) { return attributes_of<Along>(a).axis.value; }
/// The one scalar of an op: eps, or the correction of a variance.
double number(const Attributes& a) { return std::bit_cast<double>(a.scalars[0]); }
DType floated(DType t) { return is_inexact(t) ? t : DType::f32; }
/// What x is computed in: integers become f32, and so do f16 and bf16, so that parts are not rounded one by one.
Tensor widened(const Tensor& x, Location where) { return astype(x, compute_dtype(floated(x.dtype())), where); }

Tensor mean_of(const Tensor& x, std::span<const std::int64_t> axes, bool keepdims, Location where,
               double correction = 0) {
  double count = -correction;
  std::int64_t product = 1;
  for (const std::int64_t axis : axes) product *= x.shape()[static_cast<std::size_t>(axis)];
  count += static_cast<double>(product);
  // No axis named means all of them to sum(), which over a 0-d tensor is none.
  // Divided, not multiplied by a rounded 1 / count: the mean of seven times 800 is 800.
  return divide({sum(x, axes, keepdims, where), where}, count > 0 ? count : 0);
}

/// The maximum, without a gradient: it cancels in everything that subtracts it before exp. -inf of no elements.
Tensor shift_of(const Tensor& x, const IntegerList& axes, Location where) {
  Shape kept = x.shape();
  bool none = false;
  for (const std::int64_t axis : axes) {
    std::int64_t& size = kept[static_cast<std::size_t>(axis)];
    none = none || size == 0;
    size = 1;
  }
  if (none) return full(kept, -std::numeric_limits<double>::infinity(), x.dtype(), device(x), where);
  return max(x, axes, true, where).detach();
}

Tensor run_mean(const Call& call, Tensors x, const Attributes& a) {
  const Tensor m = mean_of(widened(x[0], call.where), reduced_axes(a), keeps_axes(a), call.where);
  return astype(m, floated(x[0].dtype()), call.where);
}

Tensor run_var(const Call& call, Tensors x, const Attributes& a) {
  const Tensor wide = widened(x[0], call.where);
  const Shape axes = reduced_axes(a);
  const Tensor centered = subtract({wide, call.where}, mean_of(wide, axes, true, call.where));
  const Tensor size = is_complex(wide.dtype()) ? abs({centered, call.where}) : centered;
  const Tensor result = mean_of(square({size, call.where}), axes, keeps_axes(a), call.where, number(a));
  return astype(result, real_dtype(floated(x[0].dtype())), call.where);
}

Tensor run_logsumexp(const Call& call, Tensors x, const Attributes& a) {
  const Location where = call.where;
  const Tensor wide = widened(x[0], where);
  const Shape axes = reduced_axes(a);
  const Tensor top = shift_of(wide, axes, where);
  const Tensor shift = fermata::where({isfinite({top, where}), where}, top, 0.0f);  // inf - inf would be NaN
  const Tensor total = sum(exp({subtract({wide, where}, shift), where}), axes, true, where);
  const Tensor result = add({log({total, where}), where}, shift);
  return astype(keeps_axes(a) ? result : squeeze(result, axes, where), floated(x[0].dtype()), where);
}

Tensor run_softmax(const Call& call, Tensors x, const Attributes& a) {
  const Location where = call.where;
  const Tensor wide = widened(x[0], where);
  const Tensor e = exp({subtract({wide, where}, shift_of(wide, axis_of(a), where)), where});
  // The sum is at least 1; one division for each row, not for each element.
  const Tensor scale = reciprocal({sum(e, axis_of(a), true, where), where});
  return astype(multiply({e, where}, scale), floated(x[0].dtype()), where);
}

Tensor run_log_softmax(const Call& call, Tensors x, const Attributes& a) {
  const Location where = call.where;
  const Tensor wide = widened(x[0], where);
  const Tensor shifted = subtract({wide, where}, shift_of(wide, axis_of(a), where));
  const Tensor total = sum(exp({shifted, where}), axis_of(a), true, where);
  return astype(subtract({shifted, where}, log({total, where})), floated(x[0].dtype()), where);
}

/// The mean over the labels that are not kIgnored; NaN for one out of range.
Tensor run_cross_entropy(const Call& call, Tensors x, const Attributes&) {
  constexpr std::int64_t kIgnored = -100;
  const Location where = call.where;
  const Tensor labels = astype(x[1], DType::i64, where);  // numbers beside it keep their values
  const std::int64_t classes = x[0].size(-1, where);
  const Tensor likelihood = log_softmax(widened(x[0], where), -1, where);
  const Tensor chosen = equal({iota(classes, 0, device(x[0]), where), where}, expand_dims(labels, -1, where));
  const Tensor picked = sum(fermata::where({chosen, where}, likelihood, 0.0f), -1, false, where);
  const Tensor kept = not_equal({labels, where}, kIgnored);
  const Tensor outside = logical_or({less({labels, where}, 0), where}, greater_equal({labels, where}, classes));
  const Tensor wrong = logical_and({kept, where}, outside);
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const Tensor total = sum(fermata::where({wrong, where}, kNaN, picked), {}, false, where);
  const Tensor count = sum(astype(kept, likelihood.dtype(), where), {}, false, where);
  return astype(negative({divide({total, where}, count), where}), x[0].dtype(), where);
}

/// Operands after x that were given.
struct Affine {
  Affine(Tensors x, const Attributes& a) {
    const auto given = attributes_of<Normalization>(a);
    std::size_t next = 1;
    if (given.has_weight.value) weight = x[next++];
    if (given.has_bias.value) bias = x[next];
  }
  Tensor apply(Tensor y, Location where) const {
    if (weight.defined()) y = multiply({y, where}, weight);
    return bias.defined() ? add({y, where}, bias) : y;
  }
  Tensor weight, bias;
};

Tensor run_layer_norm(const Call& call, Tensors x, const Attributes& a) {
  const Location where = call.where;
  const Tensor wide = widened(x[0], where);
  const Shape last{wide.rank() - 1};
  const Tensor centered = subtract({wide, where}, mean_of(wide, last, true, where));
  const Tensor variance = mean_of(square({centered, where}), last, true, where);
  const Tensor scale = rsqrt({add({variance, where}, number(a)), where});
  return astype(Affine(x, a).apply(multiply({centered, where}, scale), where), floated(x[0].dtype()), where);
}

Tensor run_rms_norm(const Call& call, Tensors x, const Attributes& a) {
  const Location where = call.where;
  const Tensor wide = widened(x[0], where);
  const Tensor power = mean_of(square({wide, where}), Shape{wide.rank() - 1}, true, where);
  const Tensor scale = rsqrt({add({power, where}, number(a)), where});
  return astype(Affine(x, a).apply(multiply({wide, where}, scale), where), floated(x[0].dtype()), where);
}

Tensor run_linear(const Call& call, Tensors x, const Attributes&) {
  if (weight_payload(x[1]) != nullptr) return linear_with_weights(x, call.where);  // and what wrapper keys ask for
  const Tensor product = matmul(x[0], transpose(x[1], -2, -1, call.where), call.where);
  return x.size() > 2 ? add({product, call.where}, x[2]) : product;
}

/// The last axis of x must be there, and as long as the one axis of `parameter` where that is given.
void check_last_axis(Op op, const Tensor& x, const Tensor& parameter, std::string_view label, Location where) {
  require_defined(name(op), x, where);
  normalize_axis(name(op), -1, type_of(x), where);
  if (!parameter.defined() || (parameter.rank() == 1 && parameter.size(0) == x.size(-1))) return;
  throw ShapeError(
      1021,
      format_error(
          1021, "ShapeError", fmt::format("{}: the shape of {} does not match the last axis of x", name(op), label),
          {{"x", to_string(x.dtype(), x.shape()), ""},
           {label, to_string(parameter.dtype(), parameter.shape()), fmt::format("should be [{}]", x.size(-1))}},
          where));
}

Tensor normalized(Op op, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Location where) {
  check_last_axis(op, x, weight, "weight", where);
  check_last_axis(op, x, bias, "bias", where);
  std::vector<Tensor> operands{x};
  if (weight.defined()) operands.push_back(weight);
  if (bias.defined()) operands.push_back(bias);
  const Normalization given{
      .has_weight = {weight.defined()}, .has_bias = {bias.defined()}, .eps = {std::bit_cast<std::uint64_t>(eps)}};
  return general_call(op, given, operands, where);
}

Tensor along(Op op, const Tensor& x, std::int64_t axis, Location where) {
  require_defined(name(op), x, where);
  axis = normalize_axis(name(op), axis, type_of(x), where);
  return general_call(op, Along{.axis = {axis}}, {&x, 1}, where);
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t axis, Location where) { return along(Op::softmax, x, axis, where); }
Tensor log_softmax(const Tensor& x, std::int64_t axis, Location where) {
  return along(Op::log_softmax, x, axis, where);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Location where) {
  return normalized(Op::layer_norm, x, weight, bias, eps, where);
}
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, Location where) {
  return normalized(Op::rms_norm, x, weight, {}, eps, where);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Location where) {
  require_defined("linear", x, where), require_defined("linear", weight, where);
  const std::vector<Tensor> operands = bias.defined() ? std::vector{x, weight, bias} : std::vector{x, weight};
  const bool fits = x.rank() > 0 && weight.rank() == 2 && weight.size(1) == x.size(-1) &&
                    (!bias.defined() || bias.shape() == Shape{weight.size(0)});
  if (!fits) {
    constexpr std::string_view kLabels[] = {"x", "weight", "bias"};
    std::vector<ErrorOperand> lines;
    for (std::size_t i = 0; i < operands.size(); ++i)
      lines.push_back({kLabels[i], to_string(operands[i].dtype(), operands[i].shape()), ""});
    throw ShapeError(1023, format_error(1023, "ShapeError",
                                        "linear: x [.., I], weight [O, I] and bias [O] do not match", lines, where));
  }
  return general_call(Op::linear, operands, {}, where);
}

void register_composites() {
  struct Row {
    Op op;
    Dispatcher<GeneralCall>::Kernel run;
  };
  constexpr Row kRows[] = {{Op::mean, &run_mean},
                           {Op::var, &run_var},
                           {Op::logsumexp, &run_logsumexp},
                           {Op::softmax, &run_softmax},
                           {Op::log_softmax, &run_log_softmax},
                           {Op::cross_entropy, &run_cross_entropy},
                           {Op::layer_norm, &run_layer_norm},
                           {Op::rms_norm, &run_rms_norm},
                           {Op::linear, &run_linear}};
  const RegistrationKey key = RegistrationKey::composite();
  for (const Row& row : kRows) set_kernel<GeneralCall>(row.op, key, row.run);
}

}  // namespace fermata

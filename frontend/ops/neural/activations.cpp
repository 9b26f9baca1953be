// See fermata/activations.h.
#include "fermata/activations.h"

#include <fmt/format.h>

#include "fermata/composites.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// Runs a formula over located tensors: what it records has the caller's line.
template <class F> Tensor pointwise(std::string_view function, const Tensor& x, Location where, F&& formula) {
  require_defined(function, x, where);
  const vjp::LineGuard line(where);
  return formula(VjpTensor(x)).tensor();
}

/// expm1 of what is not above 0: its derivative must not overflow where it is not taken.
VjpTensor expm1_below(const VjpTensor& x) { return vjp::expm1(vjp::minimum(x, 0)); }

}  // namespace

Tensor elu(const Tensor& x, double alpha, Location where) {
  return pointwise("elu", x, where, [&](const VjpTensor& v) { return vjp::where(v > 0, v, expm1_below(v) * alpha); });
}

Tensor celu(const Tensor& x, double alpha, Location where) {
  return pointwise("celu", x, where,
                   [&](const VjpTensor& v) { return vjp::where(v > 0, v, expm1_below(v / alpha) * alpha); });
}

Tensor leaky_relu(const Tensor& x, double slope, Location where) {
  return pointwise("leaky_relu", x, where, [&](const VjpTensor& v) { return vjp::where(v > 0, v, v * slope); });
}

Tensor prelu(const Tensor& x, const Tensor& weight, Location where) {
  require_defined("prelu", x, where), require_defined("prelu", weight, where);
  const std::int64_t count = element_count(weight.shape());
  Shape open{count};
  for (unsigned i = 2; i < x.rank(); ++i) open.push_back(1);
  if (weight.rank() > 1 || (count != 1 && (x.rank() < 2 || x.size(1) != count)))
    throw ShapeError(1078,
                     format_error(1078, "ShapeError", "prelu: weight must have one slope, or one per element of axis 1",
                                  {{"x", to_string(x.dtype(), x.shape()), ""},
                                   {"weight", to_string(weight.dtype(), weight.shape()), ""}},
                                  where));
  return pointwise("prelu", x, where, [&](const VjpTensor& v) {
    return vjp::where(v > 0, v, v * vjp::reshape(weight, count == 1 ? Shape{} : open));
  });
}

Tensor gelu(const Tensor& x, std::string_view approximate, Location where) {
  if (approximate != "none" && approximate != "tanh")
    throw ValueError(
        1376, format_error(1376, "ValueError",
                           fmt::format("gelu: \"{}\" is neither \"none\" nor \"tanh\"", approximate), {}, where));
  return approximate == "none" ? gelu({x, where}) : gelu_tanh({x, where});
}

Tensor softplus(const Tensor& x, double beta, double limit, Location where) {
  return pointwise("softplus", x, where, [&](const VjpTensor& v) {
    const VjpTensor scaled = v * beta;
    return vjp::where(scaled > limit, v, vjp::softplus(scaled) / beta);
  });
}

Tensor glu(const Tensor& x, std::int64_t axis, Location where) {
  require_defined("glu", x, where);
  const unsigned at = normalize_axis("glu", axis, type_of(x), where);
  const std::int64_t size = x.size(at);
  if (size % 2 != 0)
    throw ShapeError(
        1019, format_error(1019, "ShapeError", "glu: the size of the axis is odd",
                           {{"x", to_string(x.dtype(), x.shape()), fmt::format("axis {} is {}", at, size)}}, where));
  const std::vector<Tensor> halves = split(x, 2, at, where);
  return multiply({halves[0], where}, sigmoid({halves[1], where}));
}

Tensor hardtanh(const Tensor& x, double low, double high, Location where) {
  if (!(low <= high)) fail_parameter("hardtanh", fmt::format("low is {}, above {}", low, high), where);
  return pointwise("hardtanh", x, where, [&](const VjpTensor& v) { return vjp::minimum(vjp::maximum(v, low), high); });
}

Tensor threshold(const Tensor& x, double limit, double value, Location where) {
  return pointwise("threshold", x, where, [&](const VjpTensor& v) { return vjp::where(v > limit, v, value); });
}

Tensor hardshrink(const Tensor& x, double lambda, Location where) {
  return pointwise("hardshrink", x, where, [&](const VjpTensor& v) {
    return vjp::where(vjp::logical_and(v >= -lambda, v <= lambda), 0, v);  // NaN stays
  });
}

Tensor softshrink(const Tensor& x, double lambda, Location where) {
  if (!(lambda >= 0)) fail_parameter("softshrink", "lambda is negative", where);
  return pointwise("softshrink", x, where,
                   [&](const VjpTensor& v) { return v - vjp::minimum(vjp::maximum(v, -lambda), lambda); });
}

Tensor softmin(const Tensor& x, std::int64_t axis, Location where) {
  require_defined("softmin", x, where);
  return softmax(negative({x, where}), axis, where);
}

Tensor gumbel_softmax(const Tensor& logits, double temperature, bool hard, std::int64_t axis, Generator& from,
                      Location where) {
  require_defined("gumbel_softmax", logits, where);
  axis = normalize_axis("gumbel_softmax", axis, type_of(logits), where);
  const DType t = is_floating(logits.dtype()) ? logits.dtype() : DType::f32;
  const vjp::LineGuard line(where);
  // Numbers from [2^-25, 1), so that neither logarithm is of 0.
  const VjpTensor u = uniform(logits.shape(), 0x1p-25, 1, compute_dtype(t), from, where);
  const VjpTensor noisy = (VjpTensor(logits) - vjp::log(-vjp::log(u))) / temperature;
  const Tensor soft = astype(softmax(noisy.tensor(), axis, where), t, where);
  if (!hard) return soft;
  const VjpTensor y = soft, largest = argmax(soft.detach(), axis, true, where);
  Shape open;
  for (unsigned i = static_cast<unsigned>(axis); i < soft.rank(); ++i) open.push_back(i == axis ? soft.size(i) : 1);
  const VjpTensor one = vjp::cast(vjp::iota(open, 0, y) == largest, t);
  return ((one - VjpTensor(soft.detach())) + y).tensor();
}

}  // namespace fermata

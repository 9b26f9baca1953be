// See fermata/nn/layers.h.
#include "fermata/nn/layers.h"

#include <fmt/format.h>

#include <cmath>

#include "fermata/activations.h"
#include "fermata/autograd.h"
#include "fermata/composites.h"
#include "fermata/layers.h"
#include "fermata/ops.h"
#include "fermata/random.h"
#include "fermata/views.h"
#include "frontend/nn/parameter.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"

namespace fermata::nn {

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options, Location where) {
  require_positive("Linear", {{"in", in}, {"out", out}}, where);
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  weight = uniform_parameter({out, in}, bound, options.dtype, where);
  if (options.bias) bias = uniform_parameter(out, bound, options.dtype, where);
}
Tensor Linear::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  return linear(x, weight, bias, where);
}

Embedding::Embedding(std::int64_t rows, std::int64_t width, const EmbeddingOptions& options, Location where)
    : padding_idx(options.padding_idx) {
  require_positive("Embedding", {{"rows", rows}, {"width", width}}, where);
  const NoGradGuard no_history;
  const DType drawn = options.dtype == DType::f64 ? DType::f64 : DType::f32;
  weight = astype(normal({rows, width}, 0, 1, drawn, default_generator(), where), options.dtype, where);
  if (padding_idx) {
    const std::int64_t row = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
    if (row < 0 || row >= rows)
      fail_parameter("Embedding", fmt::format("padding_idx {} is out of range for {} rows", *padding_idx, rows), where);
    weight.select(0, row, where).assign({0, where});
  }
  weight.requires_grad(true, where);
}
Tensor Embedding::forward(const Tensor& index, Location where) const {
  const ModuleScope scope(*this);
  return embedding(index, weight, padding_idx, where);
}

Tensor Dropout::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  return training ? dropout(x, p, true, default_generator(), where) : x;
}
Tensor FeatureDropout::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  return training ? feature_dropout(x, p, true, default_generator(), where) : x;
}

Tensor ReLU::forward(const Tensor& x, Location where) const { return relu({x, where}); }
Tensor GELU::forward(const Tensor& x, Location where) const { return gelu({x, where}); }
Tensor SiLU::forward(const Tensor& x, Location where) const { return silu({x, where}); }
Tensor Mish::forward(const Tensor& x, Location where) const { return mish({x, where}); }
Tensor Sigmoid::forward(const Tensor& x, Location where) const { return sigmoid({x, where}); }
Tensor Tanh::forward(const Tensor& x, Location where) const { return tanh({x, where}); }
Tensor Flatten::forward(const Tensor& x, Location where) const {
  require_defined("Flatten", x, where);
  if (x.rank() < 2)
    throw ShapeError(1083, format_error(1083, "ShapeError", "Flatten: x has fewer than 2 axes", describe(x), where));
  std::int64_t rest = 1;
  for (unsigned i = 1; i < x.rank(); ++i) rest *= x.size(i);
  return reshape(x, {x.size(0), rest}, where);
}

}  // namespace fermata::nn

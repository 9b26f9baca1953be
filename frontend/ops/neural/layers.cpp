// See fermata/layers.h; attention is in attention.cpp.
#include "fermata/layers.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// bool: true where an element stays.
VjpTensor kept(const Shape& shape, double p, Generator& from, Location where) {
  return VjpTensor(uniform(shape, 0, 1, DType::f32, from, where)) >= p;
}

Tensor dropped(std::string_view function, const Tensor& x, const Shape& draws, double p, Generator& from,
               Location where) {
  const FloatingScope in(function, {&x}, where, true);
  if (p == 1) return in.result(vjp::where(vjp::not_equal(in(x), in(x)), in(x), 0));  // NaN stays
  return in.result(vjp::where(kept(draws, p, from, where), in(x) * (1 / (1 - p)), 0));
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training, Generator& from, Location where) {
  require_probability("dropout", x, p, where);
  return !training || p == 0 ? x : dropped("dropout", x, x.shape(), p, from, where);
}

Tensor feature_dropout(const Tensor& x, double p, bool training, Generator& from, Location where) {
  require_probability("feature_dropout", x, p, where);
  if (x.rank() < 2)
    throw ShapeError(1071, format_error(1071, "ShapeError", "feature_dropout: x must have batch and channel axes",
                                        describe(x), where));
  if (!training || p == 0) return x;
  Shape draws{x.size(0), x.size(1)};
  for (unsigned i = 2; i < x.rank(); ++i) draws.push_back(1);
  return dropped("feature_dropout", x, draws, p, from, where);
}

Tensor alpha_dropout(const Tensor& x, double p, bool training, Generator& from, Location where) {
  require_probability("alpha_dropout", x, p, where);
  if (!training || p == 0) return x;
  const FloatingScope in("alpha_dropout", {&x}, where, true);
  constexpr double kSaturated = -1.7580993408473766;  // what selu gives far below 0
  const double a = p == 1 ? 0 : 1 / std::sqrt((1 - p) * (1 + p * kSaturated * kSaturated)), b = -a * p * kSaturated;
  return in.result(vjp::where(kept(x.shape(), p, from, where), in(x), kSaturated) * a + b);
}

Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<std::int64_t> padding_idx, Location where) {
  require_defined("embedding", index, where), require_defined("embedding", weight, where);
  if (weight.rank() != 2)
    throw ShapeError(1015, format_error(1015, "ShapeError", "embedding: a matrix must have two axes",
                                        {{"index", to_string(index.dtype(), index.shape()), ""},
                                         {"weight", to_string(weight.dtype(), weight.shape()), ""}},
                                        where));
  const Tensor rows = take(weight, index, 0, where);
  if (!padding_idx) return rows;
  const std::int64_t size = weight.size(0), at = *padding_idx < 0 ? *padding_idx + size : *padding_idx;
  if (at < 0 || at >= size)
    fail_parameter("embedding", fmt::format("padding_idx {} is out of range for {} rows", *padding_idx, size), where);
  const Tensor padded = expand_dims(equal({astype(index, DType::i64, where), where}, at), -1, where);
  return fermata::where({padded, where}, rows.detach(), rows);
}

Tensor one_hot(const Tensor& x, std::optional<std::int64_t> classes, Location where) {
  require_defined("one_hot", x, where);
  if (!is_integer(x.dtype()))
    throw DTypeError(1103, format_error(1103, "DTypeError",
                                        fmt::format("one_hot: classes must be integers, not {}", name(x.dtype())),
                                        describe(x), where));
  if (classes && *classes < 0) fail_parameter("one_hot", "the number of classes is negative", where);
  const bool none = element_count(x.shape()) == 0;
  const std::int64_t count = classes ? *classes : none ? 0 : max(x, {}, false, where).item<std::int64_t>(where) + 1;
  const Tensor all = iota(count, 0, device(x), where);
  return astype(equal({expand_dims(astype(x, DType::i64, where), -1, where), where}, all), DType::i64, where);
}

}  // namespace fermata

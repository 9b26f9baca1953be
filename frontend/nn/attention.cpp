// See fermata/nn/attention.h.
#include "fermata/nn/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "fermata/autograd.h"
#include "fermata/composites.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/layers.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/nn/parameter.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"

namespace fermata::nn {

MultiheadAttention::MultiheadAttention(std::int64_t width, std::int64_t heads_,
                                       const MultiheadAttentionOptions& options, Location where)
    : out_proj(width, width, {.bias = options.bias, .dtype = options.dtype}, where),
      heads(heads_),
      dropout(options.dropout) {
  require_positive("MultiheadAttention", {{"heads", heads}}, where);
  if (width % heads != 0)
    fail_parameter("MultiheadAttention", fmt::format("{} heads do not divide a width of {}", heads, width), where);
  const double bound = std::sqrt(6 / static_cast<double>(4 * width));  // Xavier's, of [3 width, width]
  in_proj_weight = uniform_parameter({3 * width, width}, bound, options.dtype, where);
  if (!options.bias) return;
  in_proj_bias = constant_parameter(3 * width, 0, options.dtype, where);
  out_proj.bias = constant_parameter(width, 0, options.dtype, where);
}

/// Queries (part 0), keys (1) or values (2).
Tensor MultiheadAttention::projected(const Tensor& x, std::int64_t part, Location where) const {
  require_defined("MultiheadAttention", in_proj_weight, where);
  const std::int64_t width = in_proj_weight.size(1);
  const Tensor weight = slice(in_proj_weight, 0, part * width, (part + 1) * width, 1, where);
  const Tensor bias =
      in_proj_bias.defined() ? slice(in_proj_bias, 0, part * width, (part + 1) * width, 1, where) : Tensor();
  return linear(x, weight, bias, where);
}

/// [.., L, width] as [.., heads, L, width / heads].
Tensor MultiheadAttention::split_heads(const Tensor& x, Location where) const {
  const Shape shape = x.shape();
  std::vector<std::int64_t> sizes(shape.begin(), shape.end() - 1);
  sizes.push_back(heads), sizes.push_back(shape.back() / heads);
  return transpose(reshape(x, sizes, where), -3, -2, where);
}

Tensor MultiheadAttention::joined(const Tensor& heads_apart, Location where) const {
  const Tensor x = transpose(heads_apart, -3, -2, where);
  const Shape shape = x.shape();
  std::vector<std::int64_t> sizes(shape.begin(), shape.end() - 2);
  sizes.push_back(in_proj_weight.size(1));
  return out_proj.forward(reshape(x, sizes, where), where);
}

Tensor MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const MultiheadMask& options, Location where) const {
  const ModuleScope scope(*this);
  for (const Tensor* x : {&query, &key, &value}) {
    require_defined("MultiheadAttention", *x, where);
    if (x->rank() < 2)
      throw ShapeError(
          1083, format_error(1083, "ShapeError", "MultiheadAttention: x has fewer than 2 axes", describe(*x), where));
  }
  const Tensor q = split_heads(projected(query, 0, where), where), k = split_heads(projected(key, 1, where), where),
               v = split_heads(projected(value, 2, where), where);
  const double p = training ? static_cast<double>(dropout) : 0;
  return joined(scaled_dot_product_attention(
                    q, k, v, {.mask = options.mask, .dropout_p = p, .is_causal = options.is_causal}, where),
                where);
}

KeyValueCache MultiheadAttention::make_cache(std::int64_t batch, std::int64_t capacity, Location where) const {
  require_positive("make_cache", {{"batch", batch}, {"capacity", capacity}}, where);
  const std::int64_t width = in_proj_weight.size(1) / heads;
  const Device on = device(in_proj_weight, where);
  const auto room = [&] { return zeros({batch, heads, capacity, width}, in_proj_weight.dtype(), on, where); };
  return {room(), room(), zeros({}, DType::i64, on, where)};
}

Tensor MultiheadAttention::forward(const Tensor& x, KeyValueCache& cache, Location where) const {
  const ModuleScope scope(*this);
  require_defined("MultiheadAttention", x, where);
  if (x.rank() != 3)
    throw ShapeError(1083,
                     format_error(1083, "ShapeError", fmt::format("MultiheadAttention: x has {} axes, not 3", x.rank()),
                                  describe(x), where));
  const NoGradGuard no_history;
  const Device on = device(cache.keys, where);
  // Queries stand at these positions, and see those that are not after them.
  const Tensor positions = add({cache.length, where}, {iota(x.size(1), 0, on, where), where});
  const auto append = [&](const Tensor& to, std::int64_t part) {
    const Tensor next = astype(split_heads(projected(x, part, where), where), to.dtype(), where);
    to.assign({index_copy(to, positions, next, 2, where), where});
  };
  append(cache.keys, 1), append(cache.values, 2);
  const Tensor seen = less_equal({iota(cache.keys.size(2), 0, on, where), where}, expand_dims(positions, -1, where));
  const Tensor q = split_heads(projected(x, 0, where), where);
  Tensor y = scaled_dot_product_attention(q, cache.keys, cache.values, {.mask = seen}, where);
  y = joined(y, where);
  cache.length.assign({add({cache.length, where}, {x.size(1), where}), where});
  return y;
}

}  // namespace fermata::nn

// See fermata/layers.h.
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
#include "frontend/transforms/autocast/autocast.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

void require_probability(std::string_view function, const Tensor& x, double p, Location where) {
  require_defined(function, x, where);
  if (!(p >= 0 && p <= 1)) fail_parameter(function, "p is not between 0 and 1", where);
}

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

std::vector<ErrorOperand> lines_of(const Tensor& query, const Tensor& key, const Tensor& value) {
  return {{"query", to_string(query.dtype(), query.shape()), ""},
          {"key", to_string(key.dtype(), key.shape()), ""},
          {"value", to_string(value.dtype(), value.shape()), ""}};
}

[[noreturn]] void fail_attention(const std::string& what, const Tensor& q, const Tensor& k, const Tensor& v,
                                 Location where) {
  throw ShapeError(1079,
                   format_error(1079, "ShapeError", "scaled_dot_product_attention: " + what, lines_of(q, k, v), where));
}

/// [.., H, A, B] as [.., G, H / G, A, B], so that heads of one group meet its key.
Tensor grouped(const Tensor& x, std::int64_t groups, Location where) {
  const Shape shape = x.shape();
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  const auto head = static_cast<std::ptrdiff_t>(sizes.size()) - 3;
  sizes[static_cast<std::size_t>(head)] /= groups;
  sizes.insert(sizes.begin() + head, groups);
  return reshape(x, sizes, where);
}

/// Products of queries and keys. Those of f16 and bf16 (in an autocast region, what becomes that) are f32: rounded
/// before the softmax they would make half of its error.
Tensor attention_scores(const Tensor& query, const Tensor& key, Location where) {
  const Tensor q = autocast_operand(Op::matmul, query, where), k = autocast_operand(Op::matmul, key, where);
  const std::optional<DType> common = promote(q.dtype(), k.dtype());
  if (!common || compute_dtype(*common) == *common) return matmul(q, transpose(k, -2, -1, where), where);
  const Tensor rows = astype(q, *common, where), columns = transpose(astype(k, *common, where), -2, -1, where);
  return general_call(Op::matmul_f32, BorrowedTensors(rows, columns), {}, where);
}

/// The places of scores [.., H, L, S], or [.., G, H / G, L, S] where heads are grouped.
ScorePlace score_place(const Tensor& scores, bool grouped, Location where) {
  const Shape shape = scores.shape();
  const unsigned rank = shape.rank(), heads = grouped ? 2 : rank > 2 ? 1 : 0;
  /// Positions along some axes, counted from the end, as one row-major number.
  const auto along = [&](unsigned last, unsigned count) {
    Shape open;
    for (unsigned i = rank; i-- > 0;) open.push_back(i >= last && i < last + count ? shape[rank - 1 - i] : 1);
    std::int64_t size = element_count(open);
    return reshape(iota({size}, 0, device(scores), where), open, where);
  };
  const unsigned batches = rank - 2 - heads;
  return {along(2 + heads, batches), along(2, heads), along(1, 1), along(0, 1)};
}

/// Probabilities of keys for each query. A query without keys has none.
Tensor attention_weights(const Tensor& scores, const Tensor& mask, double scale, bool causal,
                         const AttentionOptions& options, Location where) {
  const FloatingScope in("scaled_dot_product_attention", {&scores}, where, true);
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  VjpTensor s = in(scores)*scale;
  if (options.score || options.keeps) {
    const ScorePlace at = score_place(scores, options.enable_gqa, where);
    const auto check = [&](const char* what, const Tensor& given) {
      require_defined("scaled_dot_product_attention", given, where);
      bool fits = given.rank() <= scores.rank();
      for (unsigned i = 0; fits && i < given.rank(); ++i) {
        const std::int64_t size = given.shape()[given.rank() - 1 - i];
        fits = size == 1 || size == scores.shape()[scores.rank() - 1 - i];
      }
      if (fits) return;
      throw ShapeError(1079, format_error(1079, "ShapeError",
                                          fmt::format("scaled_dot_product_attention: what `{}` gives does not fit the "
                                                      "scores",
                                                      what),
                                          {{"scores", to_string(scores.dtype(), scores.shape()), ""},
                                           {what, to_string(given.dtype(), given.shape()), ""}},
                                          where));
    };
    if (options.score) {
      const Tensor changed = options.score(s.tensor(), at);
      check("score", changed);
      s = astype(changed, s.dtype(), where);
      if (s.shape() != scores.shape()) s = broadcast_to(s.tensor(), scores.shape(), where);
    }
    if (options.keeps) {
      const Tensor kept = options.keeps(at);
      check("keeps", kept);
      s = vjp::where(astype(kept, DType::boolean, where), s, kOut);
    }
  }
  if (mask.defined() && mask.dtype() == DType::boolean)
    s = vjp::where(mask, s, kOut);
  else if (mask.defined())
    s = s + in(mask);
  if (causal) {
    const std::int64_t l = scores.size(-2), k = scores.size(-1);
    s = vjp::where(vjp::iota({l, 1}, 0, s) >= vjp::iota({k}, 0, s), s, kOut);
  }
  if (scores.size(-1) == 0) return in.result(s);
  const VjpTensor top = max(s.tensor(), -1, true, where).detach();
  const VjpTensor e = vjp::exp(s - vjp::where(top == kOut, 0, top));
  const VjpTensor total = sum(e.tensor(), -1, true, where);
  return in.result(e * vjp::reciprocal(vjp::where(total == 0, 1, total)));
}

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training, Generator& from, Location where) {
  require_probability("dropout", x, p, where);
  return !training || p == 0 ? x : dropped("dropout", x, x.shape(), p, from, where);
}

Tensor feature_dropout(const Tensor& x, double p, bool training, Generator& from, Location where) {
  require_probability("feature_dropout", x, p, where);
  if (x.rank() < 2)
    throw ShapeError(
        1071, format_error(1071, "ShapeError", "feature_dropout: x has images and channels", describe(x), where));
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
    throw ShapeError(1015, format_error(1015, "ShapeError", "embedding: a matrix has two axes",
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

Tensor alibi_slopes(std::int64_t heads, Location where) {
  if (heads < 1) fail_parameter("alibi_slopes", "there are no heads", where);
  // 2^(-8 k / n) for a power of two; for other numbers those of the power below, then every other one of that above.
  std::vector<double> slopes;
  std::int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const auto slope = [](std::int64_t k, std::int64_t n) {
    return std::exp2(-8 * static_cast<double>(k) / static_cast<double>(n));
  };
  for (std::int64_t k = 1; k <= power; ++k) slopes.push_back(slope(k, power));
  for (std::int64_t k = 1; k <= heads - power; ++k) slopes.push_back(slope(2 * k - 1, 2 * power));
  return astype(tensor(slopes, {heads}), DType::f32, where);
}

ScoreFunction alibi(const Tensor& slopes, Location where) {
  require_defined("alibi", slopes, where);
  return [slopes](const Tensor& score, const ScorePlace& at) {
    const VjpTensor distance = VjpTensor(at.key) - VjpTensor(at.query);
    const VjpTensor slope = vjp::cast(vjp::take(slopes, at.head, 0), score.dtype());
    return (VjpTensor(score) + slope * vjp::cast(distance, score.dtype())).tensor();
  };
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options, Location where) {
  for (const Tensor* t : {&query, &key, &value}) require_defined("scaled_dot_product_attention", *t, where);
  if (query.rank() < 2 || key.rank() < 2 || value.rank() < 2 || query.size(-1) != key.size(-1) ||
      key.size(-2) != value.size(-2))
    fail_attention("query [.., L, E], key [.., S, E] and value [.., S, V] do not fit", query, key, value, where);
  require_probability("scaled_dot_product_attention", query, options.dropout_p, where);
  Tensor q = query, k = key, v = value, mask = options.mask;
  if (options.enable_gqa) {
    const bool heads = q.rank() >= 3 && k.rank() >= 3 && v.rank() >= 3 && k.size(-3) == v.size(-3) && k.size(-3) > 0 &&
                       q.size(-3) % k.size(-3) == 0;
    if (!heads) fail_attention("query heads are no multiple of key heads", query, key, value, where);
    const std::int64_t groups = key.size(-3);
    q = grouped(q, groups, where), k = expand_dims(k, -3, where), v = expand_dims(v, -3, where);
    if (mask.defined() && mask.rank() >= 3)
      mask = mask.size(-3) == 1 ? expand_dims(mask, -3, where) : grouped(mask, groups, where);
  }
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  const Tensor scores = attention_scores(q, k, where);
  Tensor weights = attention_weights(scores, mask, scale, options.is_causal, options, where);
  weights = dropout(weights, options.dropout_p, true, default_generator(), where);
  if (is_floating(q.dtype()) && is_floating(k.dtype()))
    weights = astype(weights, *promote(q.dtype(), k.dtype()), where);
  const Tensor y = matmul(weights, v, where);
  if (!options.enable_gqa) return y;
  const Shape shape = y.shape();
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  sizes[sizes.size() - 3] *= sizes[sizes.size() - 4];
  sizes.erase(sizes.end() - 4);
  return reshape(y, sizes, where);
}

}  // namespace fermata

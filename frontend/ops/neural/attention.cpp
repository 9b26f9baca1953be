// Attention: scores, masks, the softmax between two products, and the same by blocks; see fermata/layers.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/layers.h"
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

/// Which queries and keys are multiplied: i64 [l, 1] and [s]; undefined where it is all of them.
struct Positions {
  Tensor query, key;
};

/// The places of scores [.., H, L, S], or [.., G, H / G, L, S] where heads are grouped.
ScorePlace score_place(const Tensor& scores, bool grouped, const Positions& at, Location where) {
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
  return {along(2 + heads, batches), along(2, heads), at.query.defined() ? at.query : along(1, 1),
          at.key.defined() ? at.key : along(0, 1)};
}

/// Probabilities of keys for each query. A query without keys has none.
Tensor attention_weights(const Tensor& scores, const Tensor& mask, double scale, bool causal,
                         const AttentionOptions& options, const Positions& positions, Location where) {
  const FloatingScope in("scaled_dot_product_attention", {&scores}, where, true);
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  VjpTensor s = in(scores)*scale;
  if (options.score || options.keeps) {
    const ScorePlace at = score_place(scores, options.enable_gqa, positions, where);
    const auto check = [&](const char* what, const Tensor& given) {
      require_defined("scaled_dot_product_attention", given, where);
      bool fits = given.rank() <= scores.rank();
      for (unsigned i = 0; fits && i < given.rank(); ++i) {
        const std::int64_t size = given.shape()[given.rank() - 1 - i];
        fits = size == 1 || size == scores.shape()[scores.rank() - 1 - i];
      }
      if (fits) return;
      throw ShapeError(
          1079,
          format_error(1079, "ShapeError",
                       fmt::format("scaled_dot_product_attention: the result of `{}` does not match the scores", what),
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
    const VjpTensor query = positions.query.defined() ? VjpTensor(positions.query) : vjp::iota({l, 1}, 0, s);
    const VjpTensor at = positions.key.defined() ? VjpTensor(positions.key) : vjp::iota({k}, 0, s);
    s = vjp::where(query >= at, s, kOut);
  }
  if (scores.size(-1) == 0) return in.result(s);
  const VjpTensor top = max(s.tensor(), -1, true, where).detach();
  const VjpTensor e = vjp::exp(s - vjp::where(top == kOut, 0, top));
  const VjpTensor total = sum(e.tensor(), -1, true, where);
  return in.result(e * vjp::reciprocal(vjp::where(total == 0, 1, total)));
}

/// Attention of operands whose heads are grouped already.
struct Attention {
  Tensor query, key, value, mask;
  double scale;
  const AttentionOptions& options;
  Location where;

  Tensor of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& m, const Positions& at) const {
    const Tensor scores = attention_scores(q, k, where);
    Tensor weights = attention_weights(scores, m, scale, options.is_causal, options, at, where);
    weights = dropout(weights, options.dropout_p, true, default_generator(), where);
    if (is_floating(q.dtype()) && is_floating(k.dtype()))
      weights = astype(weights, *promote(q.dtype(), k.dtype()), where);
    return matmul(weights, v, where);
  }
  Tensor whole() const { return of(query, key, value, mask, {}); }

  /// Rows of queries that see the same blocks of keys are one part; the blocks that none of them sees are not touched.
  Tensor by_blocks(const BlockMask& blocks) const {
    std::vector<Tensor> parts;
    const std::int64_t rows = blocks.rows(), columns = blocks.columns();
    for (std::int64_t row = 0, end = 0; row < rows; row = end) {
      for (end = row + 1; end < rows && blocks.same_rows(row, end);) ++end;
      std::vector<Range> seen;
      for (std::int64_t column = 0; column < columns; ++column) {
        if (!blocks.has(row, column)) continue;
        const Range next{column * blocks.block, std::min((column + 1) * blocks.block, blocks.keys)};
        if (!seen.empty() && seen.back().end == next.begin)
          seen.back().end = next.end;
        else
          seen.push_back(next);
      }
      parts.push_back(part({row * blocks.block, std::min(end * blocks.block, blocks.queries)}, seen));
    }
    return concat(parts, -2, where);
  }

 private:
  struct Range {
    std::int64_t begin, end;
  };
  /// What x has along an axis in these ranges.
  Tensor pick(const Tensor& x, std::int64_t axis, std::span<const Range> ranges) const {
    std::vector<Tensor> parts;
    for (const Range& r : ranges) parts.push_back(slice(x, axis, r.begin, r.end, 1, where));
    return parts.size() == 1 ? parts[0] : concat(parts, axis, where);
  }
  Tensor part(Range rows, std::span<const Range> seen) const {
    const Tensor q = slice(query, -2, rows.begin, rows.end, 1, where);
    if (seen.empty()) return of(q, slice(key, -2, 0, 0, 1, where), slice(value, -2, 0, 0, 1, where), {}, {});
    const Tensor all = iota(key.size(-2), 0, device(query), where);
    const Positions at{
        expand_dims(slice(iota(query.size(-2), 0, device(query), where), 0, rows.begin, rows.end, 1, where), 1, where),
        pick(all, 0, seen)};
    Tensor m = mask;
    if (m.defined() && m.rank() >= 2 && m.size(-2) != 1) m = slice(m, -2, rows.begin, rows.end, 1, where);
    if (m.defined() && m.rank() >= 1 && m.size(-1) != 1) m = pick(m, -1, seen);
    return of(q, pick(key, -2, seen), pick(value, -2, seen), m, at);
  }
};

}  // namespace

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

namespace {

/// [.., G, H / G, L, V] as [.., H, L, V].
Tensor with_one_axis_of_heads(const Tensor& y, Location where) {
  const Shape shape = y.shape();
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  sizes[sizes.size() - 3] *= sizes[sizes.size() - 4];
  sizes.erase(sizes.end() - 4);
  return reshape(y, sizes, where);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options, Location where) {
  for (const Tensor* t : {&query, &key, &value}) require_defined("scaled_dot_product_attention", *t, where);
  if (query.rank() < 2 || key.rank() < 2 || value.rank() < 2 || query.size(-1) != key.size(-1) ||
      key.size(-2) != value.size(-2))
    fail_attention("query [.., L, E], key [.., S, E] and value [.., S, V] do not match", query, key, value, where);
  require_probability("scaled_dot_product_attention", query, options.dropout_p, where);
  Tensor q = query, k = key, v = value, mask = options.mask;
  if (options.enable_gqa) {
    const bool heads = q.rank() >= 3 && k.rank() >= 3 && v.rank() >= 3 && k.size(-3) == v.size(-3) && k.size(-3) > 0 &&
                       q.size(-3) % k.size(-3) == 0;
    if (!heads)
      fail_attention("the number of query heads is not a multiple of that of key heads", query, key, value, where);
    const std::int64_t groups = key.size(-3);
    q = grouped(q, groups, where), k = expand_dims(k, -3, where), v = expand_dims(v, -3, where);
    if (mask.defined() && mask.rank() >= 3)
      mask = mask.size(-3) == 1 ? expand_dims(mask, -3, where) : grouped(mask, groups, where);
  }
  const Attention attention{
      q, k, v, mask, options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1)))), options, where};
  if (options.blocks != nullptr && (options.blocks->queries != query.size(-2) || options.blocks->keys != key.size(-2)))
    fail_attention(
        fmt::format("the block mask is for {} queries and {} keys", options.blocks->queries, options.blocks->keys),
        query, key, value, where);
  const bool empty = query.size(-2) == 0 || key.size(-2) == 0;
  if (options.blocks == nullptr || empty) {
    const Tensor y = attention.whole();
    return options.enable_gqa ? with_one_axis_of_heads(y, where) : y;
  }
  AttentionOptions masked = options;
  masked.keeps = [first = options.blocks->keeps, second = options.keeps, where](const ScorePlace& at) {
    const Tensor of_blocks = first(at);
    return second ? logical_and({of_blocks, where}, {second(at), where}) : of_blocks;
  };
  const Tensor y = Attention{q, k, v, mask, attention.scale, masked, where}.by_blocks(*options.blocks);
  return options.enable_gqa ? with_one_axis_of_heads(y, where) : y;
}

std::int64_t BlockMask::rows() const { return (queries + block - 1) / block; }
std::int64_t BlockMask::columns() const { return (keys + block - 1) / block; }
bool BlockMask::has(std::int64_t row, std::int64_t column) const {
  return blocks[static_cast<std::size_t>(row * columns() + column)];
}
bool BlockMask::same_rows(std::int64_t a, std::int64_t b) const {
  for (std::int64_t column = 0; column < columns(); ++column)
    if (has(a, column) != has(b, column)) return false;
  return true;
}
double BlockMask::density() const {
  return blocks.empty()
             ? 0
             : static_cast<double>(std::count(blocks.begin(), blocks.end(), true)) / static_cast<double>(blocks.size());
}

std::shared_ptr<const BlockMask> block_mask(ScoreMask keeps, std::int64_t queries, std::int64_t keys,
                                            std::int64_t block, Location where) {
  if (!keeps || queries < 0 || keys < 0 || block < 1)
    fail_parameter("block_mask", "requires a function, sizes, and blocks of at least one position", where);
  auto mask = std::make_shared<BlockMask>();
  mask->queries = queries, mask->keys = keys, mask->block = block;
  const Tensor none = iota({1, 1}, 0, cpu(), where), all = iota(keys, 0, cpu(), where);
  for (std::int64_t row = 0; row < mask->rows() && keys > 0; ++row) {
    const std::int64_t begin = row * block, end = std::min(begin + block, queries);
    const Tensor query = add({expand_dims(iota(end - begin, 0, cpu(), where), 1, where), where}, {begin, where});
    const Tensor kept = astype(keeps({none, none, query, all}), DType::boolean, where);
    if (kept.rank() > 2)
      throw ShapeError(1079, format_error(1079, "ShapeError", "block_mask: the mask must not depend on head or batch",
                                          {{"keeps", to_string(kept.dtype(), kept.shape()), ""}}, where));
    const std::vector<bool> any_of =
        any(broadcast_to(kept, {end - begin, keys}, where), 0, false, where).to_vector<bool>(where);
    for (std::int64_t column = 0; column < mask->columns(); ++column) {
      const auto first = any_of.begin() + column * block;
      mask->blocks.push_back(std::find(first, any_of.begin() + std::min((column + 1) * block, keys), true) !=
                             any_of.begin() + std::min((column + 1) * block, keys));
    }
  }
  mask->keeps = std::move(keeps);
  return mask;
}

}  // namespace fermata

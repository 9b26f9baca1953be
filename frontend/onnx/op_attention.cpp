// Attention and rotary embeddings.
#include <array>
#include <cmath>
#include <limits>

#include "fermata/composites.h"
#include "fermata/creation.h"
#include "fermata/layers.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/resampling.h"
#include "fermata/views.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

/// [B, L, H * E] as [B, H, L, E].
Tensor heads_of(const NodeCall& c, const Tensor& x, std::int64_t heads) {
  if (x.rank() == 4) return x;
  if (x.rank() != 3 || heads < 1) c.fail("inputs must have rank 4, or rank 3 with a number of heads");
  return permute(reshape(x, {x.size(0), x.size(1), heads, -1}, c.where), {0, 2, 1, 3}, c.where);
}
Tensor repeated(const NodeCall& c, const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  const Shape s = x.shape();
  return reshape(broadcast_to(expand_dims(x, 2, c.where), {s[0], s[1], times, s[2], s[3]}, c.where),
                 {s[0], s[1] * times, s[2], s[3]}, c.where);
}

/// What the fourth result shows, by qk_matmul_output_mode; else the scores.
constexpr std::int64_t kBiased = 2, kShares = 3;

void attention_op(NodeCall& c) {
  const bool is_flat = c.in(0).rank() == 3;
  const Tensor q = heads_of(c, c.in(0), c.attr("q_num_heads", std::int64_t{0}));
  Tensor k = heads_of(c, c.in(1), c.attr("kv_num_heads", std::int64_t{0}));
  Tensor v = heads_of(c, c.in(2), c.attr("kv_num_heads", std::int64_t{0}));
  const std::int64_t past = c.has(4) ? c.in(4).size(2) : 0;
  if (c.has(4)) k = concat({c.in(4), k}, 2, c.where);
  if (c.has(5)) v = concat({c.in(5), v}, 2, c.where);
  const Tensor present_key = k, present_value = v;
  const std::int64_t length = q.size(2), keys = k.size(2);
  const bool is_causal = c.attr("is_causal", std::int64_t{0}) != 0;
  const double softcap = c.attr("softcap", 0.0);
  const double scale = c.attr("scale", 1 / std::sqrt(static_cast<double>(q.size(3))));
  const std::int64_t groups = k.size(1) == 0 ? 1 : q.size(1) / k.size(1);

  // What is added to the scores.
  Tensor mask = c.optional(3);
  const DType dtype = q.dtype();
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  if (mask.defined()) {
    if (mask.dtype() == DType::boolean) mask = where(mask, zeros({}, dtype), kNever);
    // The keys beyond the mask are not seen.
    if (mask.size(-1) < keys) mask = pad(mask, {0, keys - mask.size(-1)}, PadMode::constant, kNever, c.where);
  }
  const auto add_mask = [&](const Tensor& seen) {
    const Tensor more = where(seen, zeros({}, dtype), kNever);
    mask = mask.defined() ? mask + more : more;
  };
  Tensor used;
  if (c.has(6)) used = reshape(astype(c.in(6), DType::i64, c.where), {-1, 1, 1, 1}, c.where);
  // The keys that come before query 0: of a cache, those that its sequence has used.
  const std::int64_t left = c.attr("left_window_size", std::int64_t{-1});
  const std::int64_t right = c.attr("right_window_size", std::int64_t{-1});
  if (is_causal || left >= 0 || right >= 0) {
    const Tensor rows = reshape(arange(length), {-1, 1}, c.where);
    const Tensor at = used.defined() && !c.has(4) ? rows + (used - length) : rows + past;
    if (is_causal) add_mask(arange(keys) <= at);
    if (left >= 0) add_mask(arange(keys) >= at - left);
    if (right >= 0) add_mask(arange(keys) <= at + right);
  }
  if (used.defined()) add_mask(arange(keys) < used);
  Tensor y;
  if (softcap == 0 && !c.wants(3)) {
    AttentionOptions options{.scale = scale, .enable_gqa = groups > 1};
    if (mask.defined()) options.mask = astype(mask, dtype, c.where);
    y = scaled_dot_product_attention(q, k, v, options, c.where);
    c.results = {Value(), Value(present_key), Value(present_value)};
  } else {
    const double root = std::sqrt(scale);
    Tensor scores = matmul(q * root, transpose(repeated(c, k, groups) * root, -2, -1, c.where), c.where);
    if (softcap != 0) scores = tanh(scores / softcap) * softcap;
    const Tensor biased = mask.defined() ? astype(scores + mask, dtype, c.where) : scores;
    Tensor shares = softmax(biased, -1, c.where);
    // A query that sees no key gives 0.
    if (mask.defined()) shares = where(max(mask, -1, true, c.where) == kNever, zeros({}, dtype), shares);
    y = matmul(shares, repeated(c, v, groups), c.where);
    const std::int64_t mode = c.attr("qk_matmul_output_mode", std::int64_t{0});
    c.results = {Value(), Value(present_key), Value(present_value),
                 Value(mode == kShares   ? shares
                       : mode == kBiased ? biased
                                         : scores)};
  }
  if (is_flat) y = reshape(permute(y, {0, 2, 1, 3}, c.where), {y.size(0), length, -1}, c.where);
  c.results[0] = Value(y);
}

void rotary_op(NodeCall& c) {
  const Tensor given = c.in(0);
  const Tensor x = given.rank() == 4 ? given : heads_of(c, given, c.attr("num_heads", std::int64_t{0}));
  const std::int64_t size = x.size(3);
  const std::int64_t turned =
      c.attr("rotary_embedding_dim", std::int64_t{0}) == 0 ? size : c.attr("rotary_embedding_dim", std::int64_t{0});
  Tensor cosine = c.in(1), sine = c.in(2);
  if (c.has(3)) cosine = take(cosine, c.in(3), 0, c.where), sine = take(sine, c.in(3), 0, c.where);
  // [B, L, turned / 2] beside [B, H, L, ..].
  cosine = expand_dims(slice(cosine, -1, 0, turned / 2, 1, c.where), 1, c.where);
  sine = expand_dims(slice(sine, -1, 0, turned / 2, 1, c.where), 1, c.where);
  const Tensor front = slice(x, 3, 0, turned, 1, c.where), rest = slice(x, 3, turned, size, 1, c.where);
  const bool interleaved = c.attr("interleaved", std::int64_t{0}) != 0;
  const Tensor a = interleaved ? slice(front, 3, 0, kNone, 2, c.where) : slice(front, 3, 0, turned / 2, 1, c.where);
  const Tensor b =
      interleaved ? slice(front, 3, 1, kNone, 2, c.where) : slice(front, 3, turned / 2, turned, 1, c.where);
  const Tensor real = cosine * a - sine * b, imaginary = sine * a + cosine * b;
  Tensor y = interleaved ? reshape(stack({real, imaginary}, -1, c.where), front.shape(), c.where)
                         : concat({real, imaginary}, 3, c.where);
  if (turned < size) y = concat({y, rest}, 3, c.where);
  if (given.rank() == 3) y = reshape(permute(y, {0, 2, 1, 3}, c.where), given.shape(), c.where);
  c.give(y);
}

constexpr std::array kRows{
    OperatorRow{"Attention", &attention_op},
    OperatorRow{"RotaryEmbedding", &rotary_op},
};

}  // namespace

Rows attention_rows() { return kRows; }

}  // namespace fermata::onnx

// Elements at positions: gathers, scatters, searches.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "fermata/creation.h"
#include "fermata/indexing.h"
#include "fermata/layers.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/subscript.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/onnx/known.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

void gather_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{0}), x.rank());
  // One position that is known is a view.
  const Value& index = c.value(1);
  if (index.known() && index.tensor().rank() == 0 && !c.at_once)
    return c.give(select(x, axis, index.tensor().item<std::int64_t>(c.where), c.where));
  c.give(take(x, c.in(1), axis, c.where));
}

void gather_elements(NodeCall& c) {
  const Tensor x = c.in(0);
  c.give(gather(x, c.in(1), axis_of(c, c.attr("axis", std::int64_t{0}), x.rank()), c.where));
}

/// x as rows of its last axes, and the row of each tuple of positions: [.., k] over the axes of x from `first` on.
struct RowsAndPlaces {
  Tensor rows, places;
  Shape inner;
};
RowsAndPlaces rows_of(const NodeCall& c, const Tensor& x, const Tensor& tuples, std::int64_t batch) {
  const auto k = tuples.rank() == 0 ? -1 : tuples.size(-1);
  const auto rank = static_cast<std::int64_t>(x.rank());
  if (k < 1 || batch + k > rank) c.fail("indices do not match the rank of the input");
  Tensor places;
  std::int64_t count = 1;
  for (std::int64_t i = 0; i < batch; ++i) count *= x.size(i);
  if (batch > 0) {
    // The batch comes first in both.
    Shape sizes;
    for (unsigned i = 0; i + 1 < tuples.rank(); ++i) sizes.push_back(i < batch ? tuples.shape()[i] : 1);
    places = reshape(arange(count), sizes, c.where);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    const std::int64_t size = x.size(batch + i);
    Tensor p = astype(select(tuples, -1, i, c.where), DType::i64, c.where);
    p = where(p < 0, p + size, p);
    places = places.defined() ? places * size + p : p;
    count *= size;
  }
  Shape inner, sizes{count};
  for (std::int64_t i = batch + k; i < rank; ++i) inner.push_back(x.size(i)), sizes.push_back(x.size(i));
  return {reshape(x, sizes, c.where), places, inner};
}
void gather_nd(NodeCall& c) {
  const auto [rows, places, inner] = rows_of(c, c.in(0), c.in(1), c.attr("batch_dims", std::int64_t{0}));
  c.give(take(rows, places, 0, c.where));
}

ScatterReduction reduction_of(const NodeCall& c, const std::string& name) {
  if (name == "add") return ScatterReduction::sum;
  if (name == "mul") return ScatterReduction::prod;
  if (name == "max") return ScatterReduction::amax;
  if (name == "min") return ScatterReduction::amin;
  c.refuse("reduction '" + name + "' is not supported");
}
Tensor scattered(const NodeCall& c, const Tensor& x, const Tensor& index, const Tensor& source, std::int64_t axis) {
  const std::string how = c.attr("reduction", "none");
  if (how == "none") return scatter(x, index, source, axis, c.where);
  return scatter_reduce(x, index, source, axis, reduction_of(c, how), true, c.where);
}
void scatter_elements(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{0}), x.rank());
  c.give(scattered(c, x, c.in(1), c.in(2), axis));
}
void scatter_nd(NodeCall& c) {
  const Tensor x = c.in(0);
  const auto [rows, places, inner] = rows_of(c, x, c.in(1), 0);
  Shape sizes{places.element_count()}, column{places.element_count()};
  for (const std::int64_t s : inner) sizes.push_back(s), column.push_back(1);
  const Tensor source = reshape(c.in(2), sizes, c.where);
  if (c.attr("reduction", "none") == "none")
    return c.give(reshape(index_copy(rows, flatten(places, c.where), source, 0, c.where), x.shape(), c.where));
  const Tensor index = broadcast_to(reshape(places, column, c.where), sizes, c.where);
  c.give(reshape(scattered(c, rows, index, source, 0), x.shape(), c.where));
}
/// Slices of a cache replaced at a position for each batch.
void tensor_scatter(NodeCall& c) {
  const Tensor x = c.in(0), update = c.in(1);
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{-2}), x.rank());
  const std::int64_t size = x.size(axis), count = update.size(axis);
  const std::string mode = c.attr("mode", "linear");
  const Tensor starts = c.has(2) ? astype(c.in(2), DType::i64, c.where) : zeros({x.size(0)}, DType::i64);
  Shape along, batch;
  for (unsigned i = 0; i < x.rank(); ++i)
    along.push_back(i == axis ? count : 1), batch.push_back(i == 0 ? x.size(0) : 1);
  Tensor places = reshape(starts, batch, c.where) + reshape(arange(count), along, c.where);
  if (mode == "circular") places = places % size;
  c.give(scatter(x, broadcast_to(places, update.shape(), c.where), update, axis, c.where));
}

void nonzero_op(NodeCall& c) {
  const Tensor x = c.in(0);
  if (x.rank() == 0)
    return c.give(stack(std::vector{fermata::nonzero(reshape(x, {1}, c.where), {}, c.where)[0]}, 0, c.where));
  c.give(stack(fermata::nonzero(x, {}, c.where), 0, c.where));
}
void compress_op(NodeCall& c) {
  Tensor x = c.in(0);
  std::int64_t axis = 0;
  if (const Attribute* const a = c.attribute("axis", AttributeType::integer))
    axis = axis_of(c, a->integer, x.rank());
  else
    x = flatten(x, c.where);
  c.give(take(x, flatnonzero(c.in(1), {}, c.where), axis, c.where));
}
void top_k(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t k = c.has(1) ? c.integer(1) : c.attr("k", std::int64_t{1});
  const TopK best = topk(x, k, axis_of(c, c.attr("axis", std::int64_t{-1}), x.rank()),
                         c.attr("largest", std::int64_t{1}) != 0, c.where);
  c.give(best.values), c.give(best.indices);
}
void one_hot_op(NodeCall& c) {
  const std::int64_t depth = c.integer(1);
  if (depth < 0) c.fail("depth is negative");
  Tensor index = c.in(0);
  if (is_floating(index.dtype())) index = astype(index, DType::i64, c.where);
  const Tensor values = c.in(2);
  const auto rank = static_cast<std::int64_t>(index.rank()) + 1;
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{-1}), static_cast<unsigned>(rank));
  Shape sizes, result;
  for (std::int64_t i = 0, from = 0; i < rank; ++i) {
    sizes.push_back(i == axis ? depth : 1);
    result.push_back(i == axis ? depth : index.size(from++));
  }
  c.will_make(result);
  index = expand_dims(index, axis, c.where);
  index = where(index < 0, index + depth, index);
  const Tensor is_hot = reshape(astype(arange(depth), index.dtype()), sizes, c.where) == index;
  c.give(where(is_hot, select(values, 0, 1, c.where), select(values, 0, 0, c.where)));
}
/// The distinct slices along an axis, in the order of their elements.
Unique unique_slices(const NodeCall& c, const Tensor& x, std::int64_t axis) {
  const std::int64_t count = x.size(axis);
  if (x.element_count() == 0) c.refuse("unique slices of an empty tensor are not supported");
  const Tensor rows = moveaxis(x, axis, 0, c.where).reshape({count, -1}, c.where);
  // By the last element first; sorting is stable.
  Tensor order = arange(count);
  for (std::int64_t column = rows.size(1); column-- > 0;)
    order = take(order, argsort(take(select(rows, 1, column, c.where), order), -1, false, c.where));
  const Tensor sorted = take(rows, order, 0, c.where);
  const Tensor differs = count_nonzero(slice(sorted, 0, 1, count) != slice(sorted, 0, 0, count - 1), 1) > 0;
  const Tensor is_first = concat({ones({1}, DType::boolean), differs}, 0, c.where);
  const Tensor starts = flatnonzero(is_first, {}, c.where);
  const Tensor ends = concat({slice(starts, 0, 1, starts.size(0)), full({1}, count, DType::i64)}, 0, c.where);
  const Tensor group = cumulative_sum(astype(is_first, DType::i64), 0) - 1;
  Unique found;
  found.indices = take(order, starts), found.counts = ends - starts;
  found.inverse_indices = take(group, argsort(order, -1, false, c.where));
  found.values = take(x, found.indices, axis, c.where);
  return found;
}
void unique_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const bool has_axis = c.has_attribute("axis") && x.rank() > 1;
  const std::int64_t axis = has_axis ? axis_of(c, c.attr("axis", std::int64_t{0}), x.rank()) : 0;
  Unique found = has_axis ? unique_slices(c, x, axis) : unique_all(x, {}, c.where);
  if (c.attr("sorted", std::int64_t{1}) == 0) {
    // In the order in which they occur first.
    const Tensor order = argsort(found.indices, -1, false, c.where);
    const Tensor back = argsort(order, -1, false, c.where);
    found.values = take(found.values, order, axis, c.where), found.indices = take(found.indices, order);
    found.counts = take(found.counts, order), found.inverse_indices = take(back, found.inverse_indices);
  }
  c.give(found.values), c.give(found.indices);
  c.give(flatten(found.inverse_indices, c.where)), c.give(found.counts);
}

/// The n-grams of one length in the pool: [count, length].
struct Grams {
  std::int64_t length, count;
  Tensor pool;
};
std::vector<Grams> grams_of(const NodeCall& c, std::int64_t& total) {
  const std::vector<std::int64_t> pool = c.attr_integers("pool_int64s"), begins = c.attr_integers("ngram_counts");
  if (pool.empty()) c.refuse("string tensors are not supported");
  const auto size = static_cast<std::int64_t>(pool.size());
  std::vector<Grams> all;
  total = 0;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::int64_t begin = begins[i], end = i + 1 < begins.size() ? begins[i + 1] : size,
                       length = static_cast<std::int64_t>(i) + 1;
    if (begin < 0 || begin > end || end > size || (end - begin) % length != 0)
      c.fail("ngram_counts does not match the pool");
    const std::vector<std::int64_t> part(pool.begin() + begin, pool.begin() + end);
    all.push_back({length, (end - begin) / length, {}});
    if (!part.empty())
      all.back().pool = tensor(std::span<const std::int64_t>(part), {all.back().count, length}, c.where);
    total += all.back().count;
  }
  return all;
}

/// How often each n-gram is in each row of x [N, C]: as [N, count], at distances of 1 to max_skip_count + 1.
Tensor gram_counts(const NodeCall& c, const Tensor& x, const Grams& grams, std::int64_t most_skipped) {
  Tensor counts = zeros({x.size(0), grams.count}, DType::f32);
  // What is skipped is between elements: single ones are counted once.
  for (std::int64_t distance = 1; distance <= (grams.length == 1 ? 1 : most_skipped + 1); ++distance) {
    const std::int64_t places = x.size(1) - (grams.length - 1) * distance;
    if (places < 1) break;
    Tensor found;
    for (std::int64_t k = 0; k < grams.length; ++k) {
      const Tensor here = slice(x, 1, k * distance, k * distance + places, 1, c.where);
      const Tensor same = expand_dims(here, 2, c.where) == select(grams.pool, 1, k, c.where);
      found = k == 0 ? same : logical_and(found, same);
    }
    counts = counts + sum(astype(found, DType::f32, c.where), {1});
  }
  return counts;
}

void tfidf_op(NodeCall& c) {
  const std::string mode = c.attr("mode", "");
  const std::vector<std::int64_t> places = c.attr_integers("ngram_indexes");
  const std::vector<double> given = c.attr_numbers("weights");
  const std::int64_t shortest = c.attr("min_gram_length", std::int64_t{1}),
                     longest = c.attr("max_gram_length", std::int64_t{1}),
                     skipped = c.attr("max_skip_count", std::int64_t{0});
  std::int64_t total = 0;
  const std::vector<Grams> grams = grams_of(c, total);
  if ((mode != "TF" && mode != "IDF" && mode != "TFIDF") || static_cast<std::int64_t>(places.size()) != total ||
      (!given.empty() && given.size() != places.size()) || places.empty() || skipped < 0)
    c.fail("attributes are inconsistent");
  std::int64_t columns = 0;
  for (const std::int64_t p : places) check_number(c, p, 0), columns = std::max(columns, p + 1);
  Tensor x = c.in(0);
  const bool is_row = x.rank() == 1;
  if (x.rank() != 1 && x.rank() != 2) c.fail("input must have rank 1 or 2");
  x = astype(is_row ? expand_dims(x, 0, c.where) : x, DType::i64, c.where);
  c.will_make({x.size(0), columns});
  Tensor counts = zeros({x.size(0), columns}, DType::f32);
  std::size_t first = 0;
  for (const Grams& g : grams) {
    const auto begin = places.begin() + static_cast<std::ptrdiff_t>(first);
    first += static_cast<std::size_t>(g.count);
    if (g.length < shortest || g.length > longest || g.count == 0) continue;
    Tensor found = gram_counts(c, x, g, skipped);
    if (mode == "IDF") found = astype(found > 0, DType::f32, c.where);
    if (mode != "TF" && !given.empty()) {
      const auto weights = given.begin() + (begin - places.begin());
      found = found * tensor(std::vector<float>(weights, weights + g.count));
    }
    counts = index_add(counts, tensor(std::vector<std::int64_t>(begin, begin + g.count)), found, 1, c.where);
  }
  c.give(is_row ? squeeze(counts, {0}, c.where) : counts);
}

constexpr std::array kRows{
    OperatorRow{"Compress", &compress_op, "reads the condition"},
    OperatorRow{"Gather", &gather_op},
    OperatorRow{"GatherElements", &gather_elements},
    OperatorRow{"GatherND", &gather_nd},
    OperatorRow{"NonZero", &nonzero_op, "reads the operand"},
    OperatorRow{"OneHot", &one_hot_op, {}, 0b110},
    OperatorRow{"Scatter", &scatter_elements},
    OperatorRow{"ScatterElements", &scatter_elements},
    OperatorRow{"ScatterND", &scatter_nd},
    OperatorRow{"TensorScatter", &tensor_scatter},
    OperatorRow{"TfIdfVectorizer", &tfidf_op, "n-grams of integers"},
    OperatorRow{"TopK", &top_k, {}, 0b10},
    OperatorRow{"Unique", &unique_op, "reads the operand"},
};

}  // namespace

Rows indexing_rows() { return kRows; }

}  // namespace fermata::onnx

// embedding_bag: rows of a table, reduced by bag; see fermata/layers.h.
//
// Sums and means are the product of a sparse matrix, whose rows are the bags, with the table: no row is written by
// itself, and the kernel asks for rows ahead.
#include <fmt/format.h>

#include <array>
#include <limits>

#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/layers.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"
#include "ir/ops/products.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

[[noreturn]] void fail_bags(std::string_view what, const Tensor& index, const Tensor& weight, const Tensor& offsets,
                            Location where) {
  std::vector<ErrorOperand> lines{{"index", to_string(index.dtype(), index.shape()), ""},
                                  {"weight", to_string(weight.dtype(), weight.shape()), ""}};
  if (offsets.defined()) lines.push_back({"offsets", to_string(offsets.dtype(), offsets.shape()), ""});
  throw ShapeError(1077, format_error(1077, "ShapeError", fmt::format("embedding_bag: {}", what), lines, where));
}

/// Sums of bags of indices [n], which begin where `offsets` say, the first at 0, and end at n.
VjpTensor sums_of_bags(const VjpTensor& table, const VjpTensor& at, const Tensor& offsets, const Tensor& weights,
                       Location where) {
  const std::int64_t rows = table.shape()[0];
  const Tensor pattern = concat({offsets, vjp::where(at < 0, at + rows, at).tensor()}, 0, where);
  const Tensor values = weights.defined() ? weights : vjp::full(1, {table.dtype(), at.shape()}, table).tensor();
  const std::array operands{pattern, values, table.tensor()};
  return general_call<Op::csr_matmul>({.columns = {rows}, .transposed = {false}}, operands, where);
}

}  // namespace

Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets, const BagOptions& o,
                     Location where) {
  require_defined("embedding_bag", index, where);
  const FloatingScope in("embedding_bag", {&weight}, where, true);
  const bool flat = offsets.defined();
  if (weight.rank() != 2 || index.rank() != (flat ? 1 : 2) || (flat && offsets.rank() != 1))
    fail_bags("expected weight [V, D] and index [B, n], or index [n] and offsets [B]", index, weight, offsets, where);
  if (o.weights.defined() && o.weights.shape() != index.shape())
    fail_bags("weights must have one number per index", index, weight, o.weights, where);
  if (o.weights.defined() && o.mode != BagMode::sum) fail_parameter("embedding_bag", "weights require mode sum", where);
  if (o.include_last_offset && (!flat || offsets.size(0) == 0))
    fail_parameter("embedding_bag", "include_last_offset requires at least one offset", where);
  const std::int64_t rows = weight.size(0), count = index.size(-1);
  const std::int64_t bags = !flat ? index.size(0) : offsets.size(0) - (o.include_last_offset ? 1 : 0);
  const VjpTensor at = astype(index, DType::i64, where);
  if (o.mode != BagMode::max && !o.padding_idx) {
    const bool is_mean = o.mode == BagMode::mean;
    const Tensor weights = o.weights.defined() ? reshape(in(o.weights).tensor(), {-1}, where) : Tensor();
    if (!flat) {
      const VjpTensor begins = vjp::iota({bags + 1}, 0, at) * count;
      const VjpTensor total =
          sums_of_bags(in(weight), reshape(at.tensor(), {-1}, where), begins.tensor(), weights, where);
      return in.result(is_mean && count > 0 ? total / count : total);
    }
    // What comes before the first bag, and after the last one, are bags that are cut off.
    const Tensor given = astype(offsets, DType::i64, where);
    const auto number = [&](std::int64_t n) {
      return vjp::full(static_cast<double>(n), {DType::i64, Shape{1}}, given).tensor();
    };
    const Tensor edges = concat({number(0), given, number(count)}, 0, where);
    const auto own = [&](const Tensor& x, std::int64_t from) { return slice(x, 0, from, from + bags, 1, where); };
    const VjpTensor total = own(sums_of_bags(in(weight), at, edges, weights, where).tensor(), 1);
    if (!is_mean) return in.result(total);
    const VjpTensor counted = vjp::maximum(VjpTensor(own(edges, 2)) - own(edges, 1), 1);
    return in.result(total / vjp::expand_dims(vjp::cast(counted, total.dtype()), 1u << 1));
  }
  VjpTensor present;  // which elements count, where not all do
  if (o.padding_idx) {
    const std::int64_t padding = *o.padding_idx < 0 ? *o.padding_idx + rows : *o.padding_idx;
    if (padding < 0 || padding >= rows)
      fail_parameter("embedding_bag", fmt::format("padding_idx {} is out of range for {} rows", *o.padding_idx, rows),
                     where);
    present = vjp::not_equal(vjp::where(at < 0, at + rows, at), padding);
  }
  // [.., n, D]
  VjpTensor taken = take(in(weight).tensor(), index, 0, where);
  if (o.weights.defined()) taken = taken * VjpTensor(expand_dims(in(o.weights).tensor(), -1, where));
  const double none = o.mode == BagMode::max ? -std::numeric_limits<double>::infinity() : 0;
  if (!present.is_scalar()) taken = vjp::where(expand_dims(present.tensor(), -1, where), taken, none);
  VjpTensor total, counted;
  if (!flat) {
    if (o.mode == BagMode::max && count == 0)
      return zeros({bags, weight.size(1)}, weight.dtype(), device(weight), where);
    total = vjp::reduce(o.mode == BagMode::max ? Op::max : Op::sum, taken, 1u << 1, false);
    counted = present.is_scalar() ? vjp::full(static_cast<double>(count), {DType::i64, Shape{bags, 1}}, taken)
                                  : VjpTensor(sum(vjp::cast(present, DType::i64).tensor(), 1, true, where));
  } else {
    // The bag of each element: the last one that begins at it or before it.
    const VjpTensor begins = slice(astype(offsets, DType::i64, where), 0, 0, bags, 1, where);
    const VjpTensor place = vjp::iota({count}, 0, taken);
    VjpTensor bag = VjpTensor(searchsorted(begins.tensor(), place.tensor(), Side::right, {}, where)) - 1;
    VjpTensor belongs = bag >= 0;
    if (o.include_last_offset)
      belongs = vjp::logical_and(belongs, place < VjpTensor(select(astype(offsets, DType::i64, where), 0, -1, where)));
    bag = vjp::where(belongs, bag, bags);  // one more, which is cut off
    if (!present.is_scalar()) belongs = vjp::logical_and(belongs, present);
    const Shape shape{bags + 1, weight.size(1)};
    if (o.mode == BagMode::max) {
      const VjpTensor start = vjp::full(none, {taken.dtype(), shape}, taken);
      const Tensor wide = broadcast_to(expand_dims(bag.tensor(), 1, where), {count, weight.size(1)}, where);
      total = scatter_reduce(start.tensor(), wide, taken.tensor(), 0, ScatterReduction::amax, true, where);
    } else {
      total = vjp::index_add(vjp::full(0, {taken.dtype(), shape}, taken), bag, taken, 0);
    }
    const VjpTensor no_counts = vjp::full(0, {DType::i64, Shape{bags + 1, 1}}, taken);
    counted = vjp::index_add(no_counts, bag, vjp::expand_dims(vjp::cast(belongs, DType::i64), 1u << 1), 0);
    total = slice(total.tensor(), 0, 0, bags, 1, where), counted = slice(counted.tensor(), 0, 0, bags, 1, where);
  }
  if (o.mode == BagMode::mean) total = total / vjp::cast(vjp::maximum(counted, 1), total.dtype());
  if (o.mode == BagMode::max) total = vjp::where(counted > 0, total, 0);
  return in.result(total);
}

}  // namespace fermata

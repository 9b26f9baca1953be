// See fermata/manipulation.h.
#include "fermata/manipulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

Tensor with_leading_axes(const char* function, const Tensor& x, unsigned rank, Location where) {
  require_defined(function, x, where);
  std::vector<std::int64_t> axes(x.rank() < rank ? rank - x.rank() : 0);
  std::iota(axes.begin(), axes.end(), 0);
  return expand_dims(x, axes, where);
}

Tensor rolled(const Tensor& x, unsigned axis, std::int64_t shift, Location where) {
  const std::int64_t size = x.shape()[axis];
  if (size == 0 || shift % size == 0) return x;
  const std::int64_t cut = size - ((shift % size) + size) % size;
  return concat({slice(x, axis, cut, kNone, 1, where), slice(x, axis, 0, cut, 1, where)}, axis, where);
}

}  // namespace

Tensor permute_dims(const Tensor& x, const IntegerList& axes, Location where) { return permute(x, axes, where); }

Tensor moveaxis(const Tensor& x, const IntegerList& source, const IntegerList& destination, Location where) {
  require_defined("moveaxis", x, where);
  const TensorType type = type_of(x);
  if (source.size() != destination.size())
    throw ValueError(1316, format_error(1316, "ValueError",
                                        fmt::format("moveaxis: {} source axes for {} destinations", source.size(),
                                                    destination.size()),
                                        describe(x), where));
  if (source.empty()) return x;
  axes_mask("moveaxis", source, type, where), axes_mask("moveaxis", destination, type, where);  // each once
  std::vector<std::int64_t> order(x.rank(), -1);
  std::vector<bool> moved(x.rank(), false);
  for (std::size_t i = 0; i < source.size(); ++i) {
    const unsigned from = normalize_axis("moveaxis", source[i], type, where);
    order[normalize_axis("moveaxis", destination[i], type, where)] = from;
    moved[from] = true;
  }
  unsigned next = 0;
  for (std::int64_t& place : order) {
    if (place >= 0) continue;
    while (moved[next]) ++next;
    place = next++;
  }
  return permute(x, order, where);
}

Tensor swapaxes(const Tensor& x, std::int64_t first, std::int64_t second, Location where) {
  return transpose(x, first, second, where);
}
Tensor flatten(const Tensor& x, Location where) { return reshape(x, -1, where); }
Tensor atleast_1d(const Tensor& x, Location where) { return with_leading_axes("atleast_1d", x, 1, where); }
Tensor atleast_2d(const Tensor& x, Location where) { return with_leading_axes("atleast_2d", x, 2, where); }

std::vector<Tensor> unstack(const Tensor& x, std::int64_t axis, Location where) {
  require_defined("unstack", x, where);
  const unsigned at = normalize_axis("unstack", axis, type_of(x), where);
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < x.shape()[at]; ++i) parts.push_back(select(x, at, i, where));
  return parts;
}

Tensor roll(const Tensor& x, const IntegerList& shift, const IntegerList& axes, Location where) {
  require_defined("roll", x, where);
  if (axes.names_none()) return x;
  if (shift.empty()) throw ValueError(1316, format_error(1316, "ValueError", "roll: no shifts", describe(x), where));
  if (axes.empty()) {
    const std::int64_t total = std::accumulate(shift.begin(), shift.end(), std::int64_t{0});
    return reshape(rolled(reshape(x, -1, where), 0, total, where), x.shape(), where);
  }
  if (shift.size() != axes.size() && shift.size() != 1)
    throw ValueError(
        1316, format_error(1316, "ValueError", fmt::format("roll: {} shifts for {} axes", shift.size(), axes.size()),
                           describe(x), where));
  Tensor result = x;
  for (std::size_t i = 0; i < axes.size(); ++i)
    result =
        rolled(result, normalize_axis("roll", axes[i], type_of(x), where), shift[shift.size() == 1 ? 0 : i], where);
  return result;
}

Tensor repeat(const Tensor& given, std::int64_t count, std::optional<std::int64_t> axis, Location where) {
  require_defined("repeat", given, where);
  if (count < 0)
    throw ValueError(1317,
                     format_error(1317, "ValueError", fmt::format("repeat: {} times", count), describe(given), where));
  const Tensor x = axis ? given : reshape(given, -1, where);
  const unsigned at = normalize_axis("repeat", axis.value_or(0), type_of(x), where);
  Shape stretched = x.shape(), result = x.shape();
  stretched.push_back(0);
  std::copy_backward(stretched.begin() + at + 1, stretched.end() - 1, stretched.end());
  stretched[at + 1] = count;
  if (__builtin_mul_overflow(result[at], count, &result[at])) result[at] = INT64_MAX;  // as many as cannot be
  return reshape(broadcast_to(expand_dims(x, static_cast<std::int64_t>(at) + 1, where), stretched, where), result,
                 where);
}

Tensor repeat(const Tensor& given, const Tensor& given_counts, std::optional<std::int64_t> axis,
              std::optional<std::int64_t> total, Location where) {
  require_defined("repeat", given, where), require_defined("repeat", given_counts, where);
  const Tensor x = axis ? given : reshape(given, -1, where);
  const unsigned at = normalize_axis("repeat", axis.value_or(0), type_of(x), where);
  if (!is_integer(given_counts.dtype()))
    throw DTypeError(1103,
                     format_error(1103, "DTypeError",
                                  fmt::format("repeat: counts must be integers, not {}", name(given_counts.dtype())),
                                  describe(given_counts), where));
  Tensor counts = astype(given_counts, DType::i64, where);
  if (counts.rank() <= 1 && counts.element_count() == 1) counts = broadcast_to(counts, x.shape()[at], where);
  if (counts.rank() != 1 || counts.size(0) != x.shape()[at])
    throw ShapeError(
        1028, format_error(1028, "ShapeError", "repeat: requires one count per element of the axis",
                           {{"x", to_string(x.dtype(), x.shape()), fmt::format("axis {} is {}", at, x.shape()[at])},
                            {"counts", to_string(counts.dtype(), counts.shape()), ""}},
                           where));
  const Tensor ends = cumulative_sum(counts, 0, false, where);
  if (!total && (is_batched(counts) || in_capture_scope()))
    throw UnsupportedError(
        2022, format_error(2022, "UnsupportedError",
                           "repeat: the size of the result depends on values that are not known while recording",
                           {{"counts", to_string(counts.dtype(), counts.shape()), ""}}, where,
                           "pass the sum of the counts as `total`"));
  const std::int64_t size = total ? *total : sum(counts, {}, false, where).item<std::int64_t>(where);
  // Element j of the result is the first whose end lies beyond j: as many ends as lie before.
  const Tensor marks = zeros({size + 1}, DType::i64, device(ends), where);
  const Tensor before = cumulative_sum(
      index_add(marks, clip({ends, where}, 0, size), ones_like(ends, {}, where), 0, where), 0, false, where);
  return take(x, slice(before, 0, 0, size, 1, where), at, where);
}

Tensor tile(const Tensor& x, const IntegerList& repetitions, Location where) {
  require_defined("tile", x, where);
  const auto rank = static_cast<unsigned>(std::max<std::size_t>(x.rank(), repetitions.size()));
  const Tensor whole = with_leading_axes("tile", x, rank, where);
  Shape stretched, result = whole.shape();
  std::vector<std::int64_t> new_axes;
  for (unsigned i = 0; i < rank; ++i) {
    const std::size_t missing = rank - repetitions.size();
    const std::int64_t times = i < missing ? 1 : repetitions[i - missing];
    if (times < 0)
      throw ValueError(1317,
                       format_error(1317, "ValueError", fmt::format("tile: {} times", times), describe(x), where));
    if (times == 1) {
      stretched.push_back(result[i]);
      continue;
    }
    new_axes.push_back(static_cast<std::int64_t>(stretched.size()));
    stretched.push_back(times), stretched.push_back(result[i]);
    result[i] *= times;
  }
  return reshape(broadcast_to(expand_dims(whole, new_axes, where), stretched, where), result, where);
}

Shape broadcast_shapes(std::initializer_list<Shape> shapes, Location where) {
  Shape common;
  for (const Shape& shape : shapes) {
    const auto next = broadcast_shapes(common, shape);
    if (!next)
      throw ShapeError(1001, format_error(1001, "ShapeError",
                                          fmt::format("broadcast_shapes: {} and {} do not broadcast", to_string(common),
                                                      to_string(shape)),
                                          {}, where));
    common = *next;
  }
  return common;
}

std::vector<Tensor> broadcast_arrays(std::span<const Tensor> tensors, Location where) {
  Shape common;
  for (const Tensor& t : tensors) {
    require_defined("broadcast_arrays", t, where);
    const auto next = broadcast_shapes(common, t.shape());
    if (!next)
      throw ShapeError(1001, format_error(1001, "ShapeError", "broadcast_arrays: shapes do not broadcast",
                                          describe(tensors[0], t), where));
    common = *next;
  }
  std::vector<Tensor> result;
  for (const Tensor& t : tensors) result.push_back(broadcast_to(t, common, where));
  return result;
}
std::vector<Tensor> broadcast_arrays(std::initializer_list<Tensor> tensors, Location where) {
  return broadcast_arrays(std::span(std::data(tensors), tensors.size()), where);
}

std::vector<Tensor> meshgrid(std::span<const Tensor> vectors, MeshIndexing indexing, Location where) {
  const std::size_t count = vectors.size();
  const auto axis_of = [&](std::size_t k) { return indexing == MeshIndexing::xy && count >= 2 && k < 2 ? 1 - k : k; };
  Shape sizes(std::vector<std::int64_t>(count, 1));
  for (std::size_t k = 0; k < count; ++k) {
    require_defined("meshgrid", vectors[k], where);
    if (vectors[k].rank() > 1)
      throw ShapeError(
          1015, format_error(1015, "ShapeError", "meshgrid: a vector must have one axis", describe(vectors[k]), where));
    sizes[axis_of(k)] = vectors[k].element_count();
  }
  std::vector<Tensor> result;
  for (std::size_t k = 0; k < count; ++k) {
    Shape along(std::vector<std::int64_t>(count, 1));
    along[axis_of(k)] = sizes[axis_of(k)];
    result.push_back(broadcast_to(reshape(vectors[k], along, where), sizes, where));
  }
  return result;
}
std::vector<Tensor> meshgrid(std::initializer_list<Tensor> vectors, MeshIndexing indexing, Location where) {
  return meshgrid(std::span(std::data(vectors), vectors.size()), indexing, where);
}

}  // namespace fermata

// Max pools whose windows lie at computed places, with the positions of what they take, and putting it back there; see
// fermata/pooling.h.
#include <fmt/format.h>

#include <algorithm>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/random.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/spatial_arguments.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

[[noreturn]] void fail_size(std::string_view function, const std::string& what, const Tensor& x, Location where) {
  throw ShapeError(1077, format_error(1077, "ShapeError", fmt::format("{}: {}", function, what), describe(x), where));
}

/// The positions of the elements of each window along an axis: [N or 1, C or 1, windows, elements of one].
using AxisPositions = std::vector<VjpTensor>;

/// The largest element of each product of windows.
PooledWithIndices pooled(const Images& images, const AxisPositions& axes, Location where) {
  const Tensor& x = images.x;
  const std::size_t count = axes.size();
  // [N, C, windows.., elements..] of positions among all elements of an image.
  VjpTensor flat;
  Shape places{x.size(0), x.size(1)};
  std::int64_t windows = 1, elements = 1;
  for (std::size_t k = 0; k < count; ++k) {
    const Shape s = axes[k].shape();
    Shape open{s[0], s[1]};
    for (std::size_t i = 0; i < 2 * count; ++i) open.push_back(i == k ? s[2] : i == count + k ? s[3] : 1);
    const VjpTensor one = vjp::reshape(axes[k], open);
    flat = k == 0 ? one : flat * x.shape()[k + 2] + one;
    places.push_back(s[2]);
    windows *= s[2], elements *= s[3];
  }
  const Shape all = flat.shape();
  const VjpTensor index = broadcast_to(reshape(flat.tensor(), {all[0], all[1], windows * elements}, where),
                                       {x.size(0), x.size(1), windows * elements}, where);
  const Tensor pixels = reshape(x, {x.size(0), x.size(1), -1}, where);
  const Shape split{x.size(0), x.size(1), windows, elements};
  const Tensor taken = reshape(gather(pixels, index.tensor(), 2, where), split, where);
  const Tensor best = argmax(taken.detach(), 3, true, where);
  const Tensor chosen = gather(reshape(index.tensor(), split, where), best, 3, where);
  return {images.restore(reshape(max(taken, 3, false, where), places, where), where),
          images.restore(reshape(chosen, places, where), where)};
}

PooledWithIndices adaptive(std::string_view function, std::size_t axes, const Tensor& given, const IntegerList& sizes,
                           Location where) {
  const Images images(function, given, axes, where);
  const Shape wanted = by_axis(function, "output_size", sizes, axes, -1, where);
  const vjp::LineGuard line(where);
  AxisPositions all;
  for (std::size_t k = 0; k < axes; ++k) {
    const std::int64_t size = images.x.shape()[k + 2], places = wanted[k] == -1 ? size : wanted[k];
    if (places < 1 || size == 0)
      fail_size(function, fmt::format("{} windows along axis {}", places, k + 2), given, where);
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < places; ++i)
      longest = std::max(longest, ((i + 1) * size + places - 1) / places - i * size / places);
    const VjpTensor i = vjp::iota({1, 1, places, 1}, 2, given);
    const VjpTensor end = vjp::floor_divide((i + 1) * size + (places - 1), places);
    all.push_back(vjp::minimum(vjp::floor_divide(i * size, places) + vjp::iota({1, 1, 1, longest}, 3, given), end - 1));
  }
  return pooled(images, all, where);
}

PooledWithIndices fractional(std::string_view function, std::size_t axes, const Tensor& given,
                             const IntegerList& kernel_size, const IntegerList& output_size, const Tensor& samples,
                             Location where) {
  const Images images(function, given, axes, where);
  const Shape kernel = by_axis(function, "kernel_size", kernel_size, axes, 1, where),
              places = by_axis(function, "output_size", output_size, axes, 1, where);
  const Shape drawn{images.x.size(0), images.x.size(1), static_cast<std::int64_t>(axes)};
  if (samples.defined() && samples.shape() != drawn)
    fail_size(function, fmt::format("samples should be [{}, {}, {}]", drawn[0], drawn[1], drawn[2]), samples, where);
  const vjp::LineGuard line(where);
  const Tensor from = samples.defined()
                          ? samples.detach()
                          : uniform(drawn, 0, 1, DType::f32, default_generator(), where).to(device(given));
  AxisPositions all;
  for (std::size_t k = 0; k < axes; ++k) {
    const std::int64_t size = images.x.shape()[k + 2], room = size - kernel[k];
    if (room < places[k] - 1)
      fail_size(function, fmt::format("{} windows of {} along axis {}", places[k], kernel[k], k + 2), given, where);
    // PyTorch's order of samples: the last axis first for images, the first one first for volumes.
    const auto number = static_cast<std::int64_t>(axes == 2 ? 1 - k : k);
    const VjpTensor sample =
        vjp::cast(vjp::expand_dims(select(from, 2, number, where), 1u << 2 | 1u << 3), from.dtype());
    const double step = places[k] == 1 ? 0 : static_cast<double>(room) / static_cast<double>(places[k] - 1);
    const VjpTensor i = vjp::iota({1, 1, places[k], 1}, 2, given);
    const VjpTensor inner = vjp::floor((vjp::cast(i, from.dtype()) + sample) * step) - vjp::floor(sample * step);
    const VjpTensor start = vjp::where(vjp::equal(i, places[k] - 1), room, vjp::cast(inner, DType::i64));
    all.push_back(start + vjp::iota({1, 1, 1, kernel[k]}, 3, given));
  }
  return pooled(images, all, where);
}

Tensor max_unpool(std::string_view function, std::size_t axes, const Tensor& given, const Tensor& indices,
                  const IntegerList& kernel_size, const IntegerList& steps, const IntegerList& pads,
                  const IntegerList& output_size, Location where) {
  const Images images(function, given, axes, where);
  require_defined(function, indices, where);
  if (indices.shape() != given.shape())
    throw ShapeError(1077,
                     format_error(1077, "ShapeError", fmt::format("{}: indices must have the shape of x", function),
                                  {{"x", to_string(given.dtype(), given.shape()), ""},
                                   {"indices", to_string(indices.dtype(), indices.shape()), ""}},
                                  where));
  const Shape kernel = by_axis(function, "kernel_size", kernel_size, axes, 1, where),
              stride = steps.empty() ? kernel : by_axis(function, "stride", steps, axes, 1, where),
              padding = by_axis(function, "padding", pads, axes, 0, where);
  const std::span<const std::int64_t> named = output_size;
  Shape wanted{images.x.size(0), images.x.size(1)};
  std::int64_t elements = 1;
  for (std::size_t k = 0; k < axes; ++k) {
    std::int64_t size = (images.x.shape()[k + 2] - 1) * stride[k] - 2 * padding[k] + kernel[k];
    if (!named.empty()) size = by_axis(function, "output_size", named, axes, 1, where)[k];
    wanted.push_back(std::max<std::int64_t>(size, 0));
    elements *= wanted[k + 2];
  }
  const Tensor& x = images.x;
  const Tensor empty = zeros({x.size(0), x.size(1), elements}, x.dtype(), device(x), where);
  const Tensor index = reshape(indices, {x.size(0), x.size(1), -1}, where);
  const Tensor put = scatter(empty, index, reshape(x, {x.size(0), x.size(1), -1}, where), 2, where);
  return images.restore(reshape(put, wanted, where), where);
}

}  // namespace

#define FERMATA_POOLS(axes)                                                                                         \
  PooledWithIndices adaptive_max_pool##axes##d_with_indices(const Tensor& x, const IntegerList& output_size,        \
                                                            Location where) {                                       \
    return adaptive("adaptive_max_pool" #axes "d_with_indices", axes, x, output_size, where);                       \
  }                                                                                                                 \
  Tensor max_unpool##axes##d(const Tensor& x, const Tensor& indices, const IntegerList& kernel_size,                \
                             const IntegerList& stride, const IntegerList& padding, const IntegerList& output_size, \
                             Location where) {                                                                      \
    return max_unpool("max_unpool" #axes "d", axes, x, indices, kernel_size, stride, padding, output_size, where);  \
  }
FERMATA_POOLS(1)
FERMATA_POOLS(2)
FERMATA_POOLS(3)

#define FERMATA_FRACTIONAL_POOL(axes)                                                                      \
  PooledWithIndices fractional_max_pool##axes##d(const Tensor& x, const IntegerList& kernel_size,          \
                                                 const IntegerList& output_size, const Tensor& samples,    \
                                                 Location where) {                                         \
    return fractional("fractional_max_pool" #axes "d", axes, x, kernel_size, output_size, samples, where); \
  }
FERMATA_FRACTIONAL_POOL(2)
FERMATA_FRACTIONAL_POOL(3)

}  // namespace fermata

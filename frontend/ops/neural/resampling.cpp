// See fermata/resampling.h. What reads elements by a rule of positions is a take() for each axis.
#include "fermata/resampling.h"

#include <fmt/format.h>

#include <algorithm>

#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

[[noreturn]] void fail_shape(std::string_view function, const std::string& what, const Tensor& x, Location where) {
  throw ShapeError(1077, format_error(1077, "ShapeError", fmt::format("{}: {}", function, what), describe(x), where));
}

/// Elements before and after along one axis.
struct Pads {
  unsigned axis;
  std::int64_t before, after;
};

std::vector<Pads> pads_of(const Tensor& x, std::span<const std::int64_t> given, Location where) {
  if (given.size() % 2 != 0 || given.size() / 2 > x.rank())
    throw ValueError(1374, format_error(1374, "ValueError",
                                        fmt::format("pad: {} numbers; expected two per padded axis", given.size()),
                                        describe(x), where));
  std::vector<Pads> pads;
  for (std::size_t i = 0; i < given.size() / 2; ++i) {
    const auto axis = static_cast<unsigned>(x.rank() - 1 - i);
    const Pads p{axis, given[2 * i], given[2 * i + 1]};
    if (p.before == 0 && p.after == 0) continue;
    std::int64_t size = 0;
    if (__builtin_add_overflow(p.before, p.after, &size) || __builtin_add_overflow(size, x.size(axis), &size) ||
        size < 0)
      fail_shape("pad", fmt::format("{} and {} leave no elements of axis {}", p.before, p.after, axis), x, where);
    pads.push_back(p);
  }
  return pads;
}

/// x without what negative pads take away.
Tensor cut(const Tensor& x, const std::vector<Pads>& pads, Location where) {
  Tensor part = x;
  for (const Pads& p : pads) {
    const std::int64_t start = std::max<std::int64_t>(-p.before, 0),
                       stop = x.size(p.axis) - std::max<std::int64_t>(-p.after, 0);
    if (start > 0 || stop < x.size(p.axis)) part = slice(part, p.axis, start, std::max(start, stop), 1, where);
  }
  return part;
}

/// Along one axis: kernels read each part where it is.
Tensor pad_ends(const Tensor& x, const Pads& pads, Scalar value, Location where) {
  std::vector<Tensor> parts;
  const auto add = [&](std::int64_t count) {
    if (count <= 0) return;
    Shape shape = x.shape();
    shape[pads.axis] = count;
    parts.push_back(broadcast_to(full({}, value, x.dtype(), device(x), where), shape, where));
  };
  add(pads.before), parts.push_back(x), add(pads.after);
  return concat(parts, pads.axis, where);
}

Tensor pad_by_value(const Tensor& x, const std::vector<Pads>& pads, Scalar value, Location where) {
  const Tensor inner = cut(x, pads, where);
  Shape whole = inner.shape();
  for (const Pads& p : pads) whole[p.axis] += std::max<std::int64_t>(p.before, 0) + std::max<std::int64_t>(p.after, 0);
  if (whole == inner.shape()) return inner;
  if (pads.size() == 1) return pad_ends(inner, pads[0], value, where);
  const Shape strides = dense_strides(whole);
  std::int64_t offset = 0;
  for (const Pads& p : pads) offset += std::max<std::int64_t>(p.before, 0) * strides[p.axis];
  const vjp::LineGuard line(where);
  // One element that is seen everywhere: what x goes over is not filled before.
  const Tensor filled = broadcast_to(full({}, value, x.dtype(), device(x), where), whole, where);
  return vjp::update(filled, inner, element_count(inner.shape()) == 0 ? 0 : offset, strides).tensor();
}

/// The position in x of every element of the padded axis.
VjpTensor positions_in(const Pads& p, std::int64_t size, PadMode mode, const Tensor& x) {
  const VjpTensor i = vjp::iota({size + p.before + p.after}, 0, x) - p.before;
  switch (mode) {
    case PadMode::replicate: return vjp::minimum(vjp::maximum(i, 0), size - 1);
    case PadMode::circular: return vjp::remainder(i, size);
    default: return size - 1 - vjp::abs(size - 1 - vjp::abs(i));
  }
}

/// `p.before` elements, x, and `p.after` ones: all that no crop goes with are views of x.
Tensor pad_by_views(const Tensor& x, const Pads& p, PadMode mode, Location where) {
  const std::int64_t size = x.size(p.axis);
  const auto part = [&](std::int64_t first, std::int64_t last) { return slice(x, p.axis, first, last, 1, where); };
  const auto end = [&](std::int64_t count, bool is_behind) {
    switch (mode) {
      case PadMode::circular: return is_behind ? part(0, count) : part(size - count, size);
      case PadMode::reflect:
        return flip(is_behind ? part(size - 1 - count, size - 1) : part(1, count + 1), p.axis, where);
      default: {
        Shape shape = x.shape();
        shape[p.axis] = count;
        return broadcast_to(is_behind ? part(size - 1, size) : part(0, 1), shape, where);
      }
    }
  };
  std::vector<Tensor> parts;
  if (p.before > 0) parts.push_back(end(p.before, false));
  parts.push_back(x);
  if (p.after > 0) parts.push_back(end(p.after, true));
  return concat(parts, p.axis, where);
}

Tensor pad_by_position(const Tensor& x, const std::vector<Pads>& pads, PadMode mode, Location where) {
  const vjp::LineGuard line(where);
  // What repeats is what negative pads leave; the others continue x as it was.
  const Tensor part = mode == PadMode::circular ? cut(x, pads, where) : x;
  VjpTensor y = part;
  for (Pads p : pads) {
    if (mode == PadMode::circular)
      p = {p.axis, std::max<std::int64_t>(p.before, 0), std::max<std::int64_t>(p.after, 0)};
    if (p.before == 0 && p.after == 0) continue;
    const std::int64_t size = part.size(p.axis), most = std::max(p.before, p.after);
    const std::int64_t reach = mode == PadMode::reflect    ? size - 1
                               : mode == PadMode::circular ? size
                               : size > 0                  ? most
                                                           : 0;
    if (most > reach)
      fail_shape("pad", fmt::format("{} elements along axis {} of size {}, at most {}", most, p.axis, size, reach), x,
                 where);
    y = p.before >= 0 && p.after >= 0 ? VjpTensor(pad_by_views(y.tensor(), p, mode, where))
                                      : vjp::take(y, positions_in(p, size, mode, x), p.axis);
  }
  return y.tensor();
}

/// The sizes before channels, rows and columns, and others instead of those; and the axes before them.
std::vector<std::int64_t> open_shape(const Tensor& x, std::initializer_list<std::int64_t> last) {
  std::vector<std::int64_t> sizes;
  for (unsigned i = 0; i + 3 < x.rank(); ++i) sizes.push_back(x.size(i));
  sizes.insert(sizes.end(), last);
  return sizes;
}
std::vector<std::int64_t> leading(const Tensor& x) {
  std::vector<std::int64_t> axes;
  for (unsigned i = 0; i + 3 < x.rank(); ++i) axes.push_back(i);
  return axes;
}

}  // namespace

Tensor pad(const Tensor& x, const IntegerList& given, PadMode mode, Scalar value, Location where) {
  require_defined("pad", x, where);
  const std::vector<Pads> pads = pads_of(x, given, where);
  if (pads.empty()) return x;
  return mode == PadMode::constant ? pad_by_value(x, pads, value, where) : pad_by_position(x, pads, mode, where);
}

Tensor pixel_shuffle(const Tensor& x, std::int64_t factor, Location where) {
  require_defined("pixel_shuffle", x, where);
  if (x.rank() < 3 || factor < 1 || x.size(-3) % (factor * factor) != 0)
    fail_shape("pixel_shuffle", fmt::format("[.., C * {0} * {0}, H, W]", factor), x, where);
  const std::int64_t c = x.size(-3) / (factor * factor), h = x.size(-2), w = x.size(-1);
  std::vector<std::int64_t> axes = leading(x);
  const auto n = static_cast<std::int64_t>(axes.size());
  axes.insert(axes.end(), {n, n + 3, n + 1, n + 4, n + 2});
  const Tensor open = reshape(x, open_shape(x, {c, factor, factor, h, w}), where);
  return reshape(permute(open, axes, where), open_shape(x, {c, h * factor, w * factor}), where);
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor, Location where) {
  require_defined("pixel_unshuffle", x, where);
  if (x.rank() < 3 || factor < 1 || x.size(-2) % factor != 0 || x.size(-1) % factor != 0)
    fail_shape("pixel_unshuffle", fmt::format("[.., C, H * {0}, W * {0}]", factor), x, where);
  const std::int64_t c = x.size(-3), h = x.size(-2) / factor, w = x.size(-1) / factor;
  std::vector<std::int64_t> axes = leading(x);
  const auto n = static_cast<std::int64_t>(axes.size());
  axes.insert(axes.end(), {n, n + 2, n + 4, n + 1, n + 3});
  const Tensor open = reshape(x, open_shape(x, {c, h, factor, w, factor}), where);
  return reshape(permute(open, axes, where), open_shape(x, {c * factor * factor, h, w}), where);
}

Tensor channel_shuffle(const Tensor& x, std::int64_t groups, Location where) {
  require_defined("channel_shuffle", x, where);
  const unsigned axis = x.rank() == 3 ? 0 : 1;
  if (x.rank() < 3 || groups < 1 || x.size(axis) % groups != 0)
    fail_shape("channel_shuffle", fmt::format("channels in {} groups", groups), x, where);
  const Shape shape = x.shape();
  std::vector<std::int64_t> open(shape.begin(), shape.end());
  open[axis] /= groups;
  open.insert(open.begin() + axis, groups);
  return reshape(transpose(reshape(x, open, where), axis, axis + 1, where), shape, where);
}

}  // namespace fermata

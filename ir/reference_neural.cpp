// Reference evaluation of gathers, scatters, windows and convolutions: plain loops over every element.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/convolution.h"
#include "ir/error.h"
#include "ir/ops/convolution.h"
#include "ir/ops/indexing.h"
#include "ir/ops/views.h"
#include "ir/reference_element.h"

namespace fermata::ops {
namespace {

/// Numbers that are put together: floats as double, integers wrapping at their own width.
class Accumulator {
 public:
  explicit Accumulator(ReferenceTensor start) : tensor_(std::move(start)) {}
  Accumulator(DType dtype, const Shape& shape) : tensor_{dtype, shape, {}, {}} {
    const auto count = static_cast<std::size_t>(element_count(shape));
    if (is_complex(dtype))
      tensor_.complexes.resize(count);
    else if (keeps_floats(dtype))
      tensor_.floats.resize(count);
    else
      tensor_.integers.resize(count);
  }
  void put(Op op, std::int64_t to, const ReferenceTensor& from, std::int64_t element) {
    const auto t = static_cast<std::size_t>(to), s = static_cast<std::size_t>(element);
    if (is_complex(tensor_.dtype)) {
      auto& z = tensor_.complexes[t];
      z = op == Op::scatter            ? from.complexes[s]
          : op == Op::scatter_multiply ? z * from.complexes[s]
                                       : z + from.complexes[s];
    } else if (keeps_floats(tensor_.dtype)) {
      tensor_.floats[t] = combined(op, tensor_.floats[t], from.floats[s]);
    } else {
      tensor_.integers[t] = combined(op, tensor_.integers[t], from.integers[s]);
    }
  }
  void add_product(std::int64_t to, const ReferenceTensor& a, std::int64_t i, const ReferenceTensor& b,
                   std::int64_t j) {
    tensor_.floats[static_cast<std::size_t>(to)] +=
        a.floats[static_cast<std::size_t>(i)] * b.floats[static_cast<std::size_t>(j)];
  }
  ReferenceTensor take() { return std::move(tensor_); }

 private:
  static double combined(Op op, double a, double b) {
    switch (op) {
      case Op::scatter: return b;
      case Op::scatter_multiply: return a * b;
      case Op::scatter_maximum: return std::isnan(a) || a > b ? a : b;
      case Op::scatter_minimum: return std::isnan(a) || a < b ? a : b;
      default: return a + b;
    }
  }
  std::int64_t combined(Op op, std::int64_t a, std::int64_t b) const {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    const bool less = tensor_.dtype == DType::u64 ? x < y : a < b;
    switch (op) {
      case Op::scatter: return b;
      case Op::scatter_maximum: return less ? b : a;
      case Op::scatter_minimum: return less ? a : b;
      default: break;
    }
    const std::uint64_t result = op == Op::scatter_multiply ? x * y : x + y;
    const std::uint64_t wrapped = convert_slot(kept_dtype(tensor_.dtype), tensor_.dtype, result);
    return static_cast<std::int64_t>(convert_slot(tensor_.dtype, kept_dtype(tensor_.dtype), wrapped));
  }
  ReferenceTensor tensor_;
};

/// Calls f(element of x, element of the index) for every element of the index.
template <class F> void for_indexed(const GraphNode& node, std::int64_t along, const ReferenceTensor& x,
                                    const ReferenceTensor& index, F&& f) {
  const auto axis = static_cast<std::size_t>(along);
  const Shape strides = dense_strides(x.shape);
  Shape others = strides;
  others[axis] = 0;
  Odometer position(index.shape);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next()) {
    const std::int64_t given = index.integers[static_cast<std::size_t>(i)];
    const std::int64_t at = given < 0 && index.dtype != DType::u64 ? given + x.shape[axis] : given;
    if (at < 0 || at >= x.shape[axis])
      throw IndexError(1204, format_error(1204, "IndexError",
                                          fmt::format("{}: position {} is out of range for {} elements", name(node.op),
                                                      given, x.shape[axis]),
                                          {}, node.where));
    f(position.offset(others) + at * strides[axis], i);
  }
}

ReferenceTensor gather(const GraphNode& node, const ReferenceTensor& x, const ReferenceTensor& index) {
  Accumulator result(node.dtype, node.shape);
  for_indexed(node, attributes_of<Gather>(node).axis.value, x, index,
              [&](std::int64_t from, std::int64_t to) { result.put(Op::scatter, to, x, from); });
  return result.take();
}

ReferenceTensor scatter(const GraphNode& node, const ReferenceTensor& x, const ReferenceTensor& index,
                        const ReferenceTensor& source) {
  Accumulator result(x);
  for_indexed(node, attributes_of<Scatter>(node).axis.value, x, index,
              [&](std::int64_t to, std::int64_t from) { result.put(node.op, to, source, from); });
  return result.take();
}

/// Windows of `whole`, whose elements are those of `windows`: unfold reads the one, fold adds to it.
ReferenceTensor windows(const GraphNode& node, const ReferenceTensor& x, const Shape& whole, const Shape& apart,
                        std::int64_t along_axis, std::int64_t step, std::int64_t dilation) {
  const auto axis = static_cast<std::size_t>(along_axis);
  Shape strides = dense_strides(whole);
  const std::int64_t along = strides[axis];
  strides[axis] = along * step;
  strides.push_back(along * dilation);
  Accumulator result(node.dtype, node.shape);
  Odometer position(apart);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next()) {
    const std::int64_t in_whole = position.offset(strides);
    node.op == Op::fold ? result.put(Op::fold, in_whole, x, i) : result.put(Op::scatter, i, x, in_whole);
  }
  return result.take();
}

/// Calls f(element of x, element of the filters, element of the result) for every product of a convolution.
template <class F>
void for_products(const GraphNode& node, const Shape& x, const Shape& weight, const Shape& result, F&& f) {
  const ConvolutionAttributes a(attributes_of<ops::Convolution>(node));  // those of its gradients as well
  const Shape x_strides = dense_strides(x);
  Odometer to(result), by(weight);
  const std::int64_t filters = weight[0] / a.groups;
  for (std::int64_t i = 0; i < to.count(); ++i, to.next()) {
    by = Odometer(weight);
    for (std::int64_t j = 0; j < by.count(); ++j, by.next()) {
      if (by[0] != to[1]) continue;
      std::int64_t from = to[0] * x_strides[0] + (to[1] / filters * weight[1] + by[1]) * x_strides[1];
      bool inside = true;
      for (std::size_t s = 0; s < a.axes(); ++s) {
        const std::int64_t at = to[s + 2] * a.strides[s] + by[s + 2] * a.dilation[s] - a.padding[s];
        inside = inside && at >= 0 && at < x[s + 2];
        from += at * x_strides[s + 2];
      }
      if (inside) f(from, j, i);
    }
  }
}

ReferenceTensor convolution(const GraphNode& node, const ReferenceTensor& a, const ReferenceTensor& b) {
  Accumulator sums(node.dtype, node.shape);
  using I = std::int64_t;
  if (node.op == Op::convolution)
    for_products(node, a.shape, b.shape, node.shape, [&](I x, I w, I y) { sums.add_product(y, a, x, b, w); });
  else if (node.op == Op::convolution_data_gradient)
    for_products(node, node.shape, b.shape, a.shape, [&](I x, I w, I y) { sums.add_product(x, a, y, b, w); });
  else
    for_products(node, a.shape, node.shape, b.shape, [&](I x, I w, I y) { sums.add_product(w, a, x, b, y); });
  return sums.take();
}

}  // namespace

namespace {

/// What one axis of an image contributes to a place: position and weight.
using ReferenceTaps = std::vector<std::pair<std::int64_t, double>>;

double mirrored(double place, double size, bool align_corners) {
  const double low = align_corners ? 0 : -0.5, span = align_corners ? size - 1 : size;
  if (span <= 0) return place * 0;
  const double turn = std::fmod(std::fabs(place - low), 2 * span);
  return std::clamp((turn > span ? 2 * span - turn : turn) + low, 0.0, size - 1);
}
ReferenceTaps taps_of(const GridSample& op, double coordinate, double size) {
  double place = op.align_corners.value ? (coordinate + 1) * (size - 1) / 2 : ((coordinate + 1) * size - 1) / 2;
  const bool zeros = op.padding.value == 0, mirrors = op.padding.value == 2;
  if (op.mode.value != 2 && !zeros)
    place = mirrors             ? mirrored(place, size, op.align_corners.value)
            : std::isnan(place) ? place
                                : std::clamp(place, 0.0, size - 1);
  const double first = op.mode.value == 0 ? std::nearbyint(place) : std::floor(place), t = place - first;
  const auto cubic = [](double d) {
    d = std::fabs(d);
    return d <= 1 ? (1.25 * d - 2.25) * d * d + 1 : ((-0.75 * d + 3.75) * d - 6) * d + 3;
  };
  std::vector<std::pair<double, double>> around;
  if (op.mode.value == 0)
    around = {{first, 1}};
  else if (op.mode.value == 1)
    around = {{first, 1 - t}, {first + 1, t}};
  else
    for (int k = -1; k <= 2; ++k) around.emplace_back(first + k, cubic(t - k));
  ReferenceTaps taps;
  for (auto [whole, weight] : around) {
    if (zeros && !(whole >= 0 && whole <= size - 1)) weight = std::isnan(whole) ? whole : 0;
    if (mirrors) whole = mirrored(whole, size, op.align_corners.value);
    taps.emplace_back(whole > 0 ? static_cast<std::int64_t>(std::min(whole, size - 1)) : 0, weight);
  }
  return taps;
}

}  // namespace

ReferenceTensor GridSample::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const ReferenceTensor &x = *operands[0], &grid = *operands[1];
  const auto op = attributes_of<GridSample>(node);
  const std::int64_t channels = x.shape[1], places = grid.shape[1], axes = grid.shape[2];
  std::int64_t elements = 1;
  for (unsigned k = 2; k < x.shape.rank(); ++k) elements *= x.shape[k];
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  for (std::int64_t i = 0; i < element_count(node.shape); ++i) {
    const std::int64_t n = i / (channels * places), p = i % places;
    ReferenceTaps all{{i / places * elements, 1}};
    std::int64_t stride = elements;
    for (std::int64_t k = 0; k < axes; ++k) {
      const std::int64_t size = x.shape[static_cast<std::size_t>(k + 2)];
      stride /= size;
      ReferenceTaps longer;
      const double coordinate = grid.floats[static_cast<std::size_t>((n * places + p) * axes + axes - 1 - k)];
      for (const auto& [at, weight] : all)
        for (const auto& [index, own] : taps_of(op, coordinate, static_cast<double>(size)))
          longer.emplace_back(at + index * stride, weight * own);
      all = std::move(longer);
    }
    double sum = 0;
    for (const auto& [at, weight] : all) sum += weight * x.floats[static_cast<std::size_t>(at)];
    result.floats.push_back(sum);
  }
  return result;
}

ReferenceTensor Gather::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return gather(node, *operands[0], *operands[1]);
}
ReferenceTensor Scatter::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return scatter(node, *operands[0], *operands[1], *operands[2]);
}
ReferenceTensor Unfold::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Unfold>(node);
  const ReferenceTensor& x = *operands[0];
  return windows(node, x, x.shape, node.shape, op.axis.value, op.step.value, op.dilation.value);
}
ReferenceTensor Fold::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Fold>(node);
  const ReferenceTensor& x = *operands[0];
  return windows(node, x, node.shape, x.shape, op.axis.value, op.step.value, op.dilation.value);
}
ReferenceTensor Convolution::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return convolution(node, *operands[0], *operands[1]);
}
ReferenceTensor ConvolutionDataGradient::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return convolution(node, *operands[0], *operands[1]);
}
ReferenceTensor ConvolutionWeightGradient::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return convolution(node, *operands[0], *operands[1]);
}

}  // namespace fermata::ops

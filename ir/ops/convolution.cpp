// See convolution.h.
#include "ir/ops/convolution.h"

#include <fmt/format.h>

#include "ir/convolution.h"

namespace fermata::ops {
namespace {

/// Those of its gradients are stored alike.
ConvolutionAttributes convolution_attributes(Integers attributes) {
  return ConvolutionAttributes(decode<Convolution>({.attributes = attributes, .shape = {}, .scalars = {}}));
}

/// The three shapes of a convolution; operands and result of the op and of its gradients in another order each.
struct ThreeShapes {
  const InferCall& call;
  const TensorType &x, &weight;
  ConvolutionAttributes attributes;

  ThreeShapes(const InferCall& c, const TensorType& data, const TensorType& filters)
      : call(c), x(data), weight(filters), attributes(convolution_attributes(c.attributes)) {
    for (std::size_t i = 0; i < 2; ++i)
      if (!kFloating.has(call.operand(i).dtype)) call.refuse_dtype(i);
    call.require_same_dtype(0, 1);
  }

  /// The shape of convolution(x, weight).
  Shape result() const {
    check_axes();
    check_channels();
    Shape shape{x.shape[0], weight.shape[0]};
    for (unsigned i = 0; i < attributes.axes(); ++i) shape.push_back(size_along(i));
    return shape;
  }

 private:
  void check_axes() const {
    const std::size_t axes = attributes.axes();
    if (axes == 0 || x.shape.rank() != axes + 2 || weight.shape.rank() != axes + 2)
      call.fail<ShapeError>(
          1071, "ShapeError",
          fmt::format("[N, C, ..] and [O, C / groups, ..] with {} spatial ax{} each", axes, axes == 1 ? "is" : "es"));
    call.require_positive(attributes.groups, "the number of groups");
    for (std::size_t i = 0; i < axes; ++i) {
      call.require_positive(attributes.strides[i], "a stride"),
          call.require_positive(attributes.dilation[i], "a dilation");
      if (attributes.padding[i] < 0 || attributes.padding_end[i] < 0)
        call.fail<ValueError>(1371, "ValueError", "a padding is negative", {}, "slice x instead");
    }
  }
  void check_channels() const {
    const std::int64_t given = x.shape[1];
    std::int64_t taken = 0;
    const bool overflow = __builtin_mul_overflow(weight.shape[1], attributes.groups, &taken);
    if (!overflow && given == taken && weight.shape[0] % attributes.groups == 0) return;
    call.fail<ShapeError>(1072, "ShapeError",
                          fmt::format("channels do not match ({} and {} groups of {}, with {} filters)", given,
                                      attributes.groups, weight.shape[1], weight.shape[0]));
  }
  std::int64_t size_along(unsigned i) const {
    const std::int64_t length = x.shape[i + 2], filter = weight.shape[i + 2];
    const std::int64_t size = attributes.result_size(i, length, filter);
    if (filter < 1 || size < 1) {
      const auto padded = static_cast<std::uint64_t>(length) + static_cast<std::uint64_t>(attributes.padding[i]) +
                          static_cast<std::uint64_t>(attributes.padding_end[i]);
      call.fail<ShapeError>(1073, "ShapeError",
                            fmt::format("a filter of {} elements, {} apart, does not fit {} along axis {}", filter,
                                        attributes.dilation[i], padded, i + 2));
    }
    return size;
  }
};

/// ShapeError unless the gradient has the shape that the convolution of the other two would have.
void require_gradient(const ThreeShapes& c, const TensorType& gradient, std::size_t operand) {
  const Shape expected = c.result();
  if (gradient.shape == expected) return;
  std::vector<std::string> notes(2);
  notes[operand] = "should be " + to_string(expected);
  c.call.fail<ShapeError>(1074, "ShapeError", "the shape of the gradient does not match", notes);
}

// Examples. The gradients have one position only, so that steps, paddings and dilations may change by themselves; the
// number of groups and the axis of fold go with sizes of the operands.
constexpr std::int64_t kOne[] = {1}, kTwo[] = {2}, kFive[] = {5}, kZero[] = {0}, kDataShape[] = {2, 4, 5},
                       kWeightShape[] = {4, 4, 2}, kGroupedWeightShape[] = {4, 2, 2}, kFoldedFirst[] = {3, 2},
                       kFoldedLast[] = {2, 3};

Convolution strided(std::int64_t groups) {
  return {.groups = {groups}, .strides = {kTwo}, .padding = {kZero}, .padding_end = {kZero}, .dilation = {kOne}};
}
ConvolutionDataGradient data_gradient(std::int64_t groups) {
  return {.groups = {groups},
          .strides = {kFive},
          .padding = {kZero},
          .padding_end = {kZero},
          .dilation = {kOne},
          .shape = {kDataShape}};
}
ConvolutionWeightGradient weight_gradient(std::int64_t groups) {
  return {.groups = {groups},
          .strides = {kFive},
          .padding = {kZero},
          .padding_end = {kZero},
          .dilation = {kOne},
          .shape = {groups == 1 ? kWeightShape : kGroupedWeightShape}};
}
Fold folded(std::int64_t axis) {
  return {.axis = {axis}, .step = {3}, .dilation = {1}, .shape = {axis == 0 ? kFoldedFirst : kFoldedLast}};
}
TensorType f32(std::initializer_list<std::int64_t> sizes) { return {DType::f32, Shape(sizes)}; }

}  // namespace

TensorType Convolution::infer(const InferCall& call) const {
  return call.result(call.operand(0).dtype, ThreeShapes(call, call.operand(0), call.operand(1)).result());
}

Example<Convolution> Convolution::example() { return {{f32({2, 4, 7}), f32({4, 4, 3})}, strided(1)}; }
std::vector<Example<Convolution>> Convolution::other_examples() {
  return {{{f32({2, 4, 7}), f32({4, 2, 3})}, strided(2)}};
}

TensorType ConvolutionDataGradient::infer(const InferCall& call) const {
  const TensorType result = call.result(call.operand(0).dtype, call.wanted.shape);
  require_gradient(ThreeShapes(call, result, call.operand(1)), call.operand(0), 0);
  return result;
}

Example<ConvolutionDataGradient> ConvolutionDataGradient::example() {
  return {{f32({2, 4, 1}), f32({4, 4, 2})}, data_gradient(1)};
}
std::vector<Example<ConvolutionDataGradient>> ConvolutionDataGradient::other_examples() {
  return {{{f32({2, 4, 1}), f32({4, 2, 2})}, data_gradient(2)}};
}

TensorType ConvolutionWeightGradient::infer(const InferCall& call) const {
  const TensorType result = call.result(call.operand(0).dtype, call.wanted.shape);
  require_gradient(ThreeShapes(call, call.operand(0), result), call.operand(1), 1);
  return result;
}

Example<ConvolutionWeightGradient> ConvolutionWeightGradient::example() {
  return {{f32({2, 4, 5}), f32({2, 4, 1})}, weight_gradient(1)};
}
std::vector<Example<ConvolutionWeightGradient>> ConvolutionWeightGradient::other_examples() {
  return {{{f32({2, 4, 5}), f32({2, 4, 1})}, weight_gradient(2)}};
}

TensorType Fold::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  if (!kNumbers.has(x.dtype)) call.refuse_dtype(0);
  call.require_positive(step.value, "the step"), call.require_positive(dilation.value, "the dilation");
  const std::int64_t axis = this->axis.value;
  Shape expected = x.shape;
  if (x.shape.rank() < 2 || axis >= x.shape.rank() - 1 || call.wanted.shape.rank() + 1 != x.shape.rank())
    call.fail<ShapeError>(1075, "ShapeError", fmt::format("no windows along axis {}", axis));
  const auto at = static_cast<unsigned>(axis);
  const std::int64_t length = call.wanted.shape[at], size = x.shape.back();
  Shape shape = call.wanted.shape;
  for (unsigned i = 0; i < shape.rank(); ++i)
    if (i != at) shape[i] = x.shape[i];
  expected[at] = size < 1 || length < 0 ? -1 : window_count(length, size, step.value, dilation.value);
  if (shape != call.wanted.shape || expected != x.shape)
    call.fail<ShapeError>(
        1075, "ShapeError",
        fmt::format("the windows do not match size {} along axis {}", to_string(call.wanted.shape), axis));
  return call.result(x.dtype, shape);
}

Example<Fold> Fold::example() { return {{f32({1, 2, 2})}, folded(0)}; }
std::vector<Example<Fold>> Fold::other_examples() { return {{{f32({2, 1, 2})}, folded(1)}}; }

}  // namespace fermata::ops

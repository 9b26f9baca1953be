// Inference of gathers, scatters, windows and convolutions.
#include <fmt/format.h>

#include <algorithm>

#include "ir/convolution.h"
#include "ir/infer_call.h"

namespace fermata {
namespace {

/// The index has the axes of x, none longer than that of x but the one that is indexed.
void require_index_shape(const InferCall& call) {
  call.require_index_dtype();
  const TensorType &x = call.operand(0), &index = call.operand(1);
  const unsigned axis = call.axis_attribute(x);
  bool fits = index.shape.rank() == x.shape.rank();
  for (unsigned i = 0; fits && i < x.shape.rank(); ++i) fits = i == axis || index.shape[i] <= x.shape[i];
  if (!fits)
    call.fail<ShapeError>(1070, "ShapeError",
                          fmt::format("index must have the axes of x, none longer other than axis {}", axis));
}

void require_step(const InferCall& call, std::size_t attribute, std::string_view what) {
  if (call.attributes[attribute] >= 1) return;
  call.fail<ValueError>(1370, "ValueError", fmt::format("{} is {}, below 1", what, call.attributes[attribute]));
}

/// The three shapes of a convolution; operands and result of the op and of its gradients in another order each.
struct Convolution {
  const InferCall& call;
  const TensorType &x, &weight;
  ConvolutionAttributes attributes;

  Convolution(const InferCall& c, const TensorType& data, const TensorType& filters)
      : call(c), x(data), weight(filters), attributes(c.attributes) {
    if (call.attributes.empty() || (call.attributes.size() - 1) % 4 != 0)
      throw_internal(call.headline("wrong number of attributes"), call.where);
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
    require_step(call, 0, "the number of groups");
    for (std::size_t i = 0; i < axes; ++i) {
      require_step(call, 1 + i, "a stride"), require_step(call, 1 + 3 * axes + i, "a dilation");
      if (attributes.padding[i] < 0 || attributes.padding_end[i] < 0)
        call.fail<ValueError>(1371, "ValueError", "a padding is negative", {}, "slice x instead");
    }
  }
  void check_channels() const {
    const std::int64_t given = x.shape[1], taken = weight.shape[1] * attributes.groups;
    if (given == taken && weight.shape[0] % attributes.groups == 0) return;
    call.fail<ShapeError>(1072, "ShapeError",
                          fmt::format("channels do not fit ({} and {} groups of {}, with {} filters)", given,
                                      attributes.groups, weight.shape[1], weight.shape[0]));
  }
  std::int64_t size_along(unsigned i) const {
    const std::int64_t length = x.shape[i + 2], filter = weight.shape[i + 2];
    const std::int64_t padded = length + attributes.padding[i] + attributes.padding_end[i];
    const std::int64_t size = attributes.result_size(i, length, filter);
    if (filter < 1 || size < 1)
      call.fail<ShapeError>(1073, "ShapeError",
                            fmt::format("a filter of {} elements, {} apart, does not fit {} along axis {}", filter,
                                        attributes.dilation[i], padded, i + 2));
    return size;
  }
};

/// ShapeError unless the gradient has the shape that the convolution of the other two would have.
void require_gradient(const Convolution& c, const TensorType& gradient, std::size_t operand) {
  const Shape expected = c.result();
  if (gradient.shape == expected) return;
  std::vector<std::string> notes(2);
  notes[operand] = "should be " + to_string(expected);
  c.call.fail<ShapeError>(1074, "ShapeError", "the gradient does not fit", notes);
}

}  // namespace

TensorType infer_gather(const InferCall& call) {
  require_index_shape(call);
  const TensorType &x = call.operand(0), &index = call.operand(1);
  const unsigned axis = call.axis_attribute(x);
  if (x.shape[axis] == 0 && element_count(index.shape) != 0)
    call.fail<ShapeError>(1009, "ShapeError", "no elements to choose from", {fmt::format("axis {} is 0", axis)});
  return call.result(x.dtype, index.shape);
}

TensorType infer_scatter(const InferCall& call) {
  require_index_shape(call);
  call.require_same_dtype(0, 2);
  const bool orders = call.op == Op::scatter_maximum || call.op == Op::scatter_minimum;
  const DTypeSet accepted = call.op == Op::scatter ? kNumbersOrBoolean : orders ? kReal : kNumbers;
  if (!accepted.has(call.operand(0).dtype)) call.refuse_dtype(0);
  const Shape& expected = call.operand(1).shape;
  if (call.operand(2).shape != expected)
    call.fail<ShapeError>(1011, "ShapeError", "the source does not fit", {"", "", "should be " + to_string(expected)});
  return call.operand(0);
}

TensorType infer_unfold(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const unsigned axis = call.axis_attribute(x);
  require_step(call, 1, "the size of a window"), require_step(call, 2, "the step"),
      require_step(call, 3, "the dilation");
  const std::int64_t size = call.attributes[1];
  Shape shape = x.shape;
  if (shape.rank() == kMaxRank)
    call.fail<ShapeError>(1003, "ShapeError", fmt::format("{} axes, more than {}", kMaxRank + 1, kMaxRank));
  // Sizes beyond the axis fit no window; the product of two of them might overflow.
  const bool beyond = size > x.shape[axis] || call.attributes[3] > std::max<std::int64_t>(x.shape[axis], 1);
  const std::int64_t count =
      beyond && size > 1 ? 0 : window_count(x.shape[axis], size, call.attributes[2], call.attributes[3]);
  if (count < 1)
    call.fail<ShapeError>(
        1073, "ShapeError",
        fmt::format("a window of {} elements, {} apart, does not fit axis {}", size, call.attributes[3], axis),
        {fmt::format("axis {} is {}", axis, x.shape[axis])});
  shape[axis] = count;
  shape.push_back(size);
  return call.result(x.dtype, shape);
}

TensorType infer_fold(const InferCall& call) {
  const TensorType& x = call.operand(0);
  if (!kNumbers.has(x.dtype)) call.refuse_dtype(0);
  require_step(call, 1, "the step"), require_step(call, 2, "the dilation");
  const std::int64_t axis = call.attributes[0];
  Shape expected = x.shape;
  if (x.shape.rank() < 2 || axis < 0 || axis + 1 >= x.shape.rank() || call.wanted.shape.rank() + 1 != x.shape.rank())
    call.fail<ShapeError>(1075, "ShapeError", fmt::format("no windows along axis {}", axis));
  const auto at = static_cast<unsigned>(axis);
  const std::int64_t length = call.wanted.shape[at], size = x.shape.back();
  Shape shape = call.wanted.shape;
  for (unsigned i = 0; i < shape.rank(); ++i)
    if (i != at) shape[i] = x.shape[i];
  expected[at] = size < 1 || length < 0 ? -1 : window_count(length, size, call.attributes[1], call.attributes[2]);
  if (shape != call.wanted.shape || expected != x.shape)
    call.fail<ShapeError>(
        1075, "ShapeError",
        fmt::format("the windows are not those of {} along axis {}", to_string(call.wanted.shape), axis));
  return call.result(x.dtype, shape);
}

TensorType infer_convolution(const InferCall& call) {
  return call.result(call.operand(0).dtype, Convolution(call, call.operand(0), call.operand(1)).result());
}

TensorType infer_convolution_data_gradient(const InferCall& call) {
  const TensorType result = call.result(call.operand(0).dtype, call.wanted.shape);
  require_gradient(Convolution(call, result, call.operand(1)), call.operand(0), 0);
  return result;
}

TensorType infer_convolution_weight_gradient(const InferCall& call) {
  const TensorType result = call.result(call.operand(0).dtype, call.wanted.shape);
  require_gradient(Convolution(call, call.operand(0), result), call.operand(1), 1);
  return result;
}

}  // namespace fermata

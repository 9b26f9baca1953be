// Inference of the ops that fit no family: views, gathers, concatenation. Products are in infer_products.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/infer_call.h"

namespace fermata {
namespace {

std::string count_note(const Shape& shape) {
  const std::int64_t count = element_count(shape);
  return fmt::format("{} element{}", count, count == 1 ? "" : "s");
}

void require_arguments(const InferCall& call, std::size_t operands, std::size_t attributes) {
  if (call.operands.size() != operands || call.attributes.size() != attributes)
    throw_internal(call.headline("wrong number of operands or attributes"), call.where);
}

TensorType infer_iota(const InferCall& call) {
  call.require_wanted_dtype(DType::i64, "i64");
  normalize_axis(name(call.op), call.attributes[0], call.wanted, call.where);
  return call.result(DType::i64, call.wanted.shape);
}

TensorType infer_cast(const InferCall& call) {
  const DType from = call.operand(0).dtype;
  if (!kNumbersOrBoolean.has(from)) call.refuse_dtype(0);
  call.require_wanted_dtype(kNumbersOrBoolean, "a number or bool");
  if (is_complex(from) && kReal.has(call.wanted.dtype))
    call.fail<DTypeError>(1110, "DTypeError",
                          fmt::format("{} does not convert to {}", name(from), name(call.wanted.dtype)), {},
                          "real(), imag() or abs() gives a real number for each");
  return call.result(call.wanted.dtype, call.operand(0).shape);
}

TensorType infer_reshape(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const std::int64_t count = check_shape(name(call.op), call.wanted.shape, x.dtype, call.where);
  if (count != element_count(x.shape))
    call.fail<ShapeError>(1006, "ShapeError",
                          fmt::format("{} has {}", to_string(call.wanted.shape), count_note(call.wanted.shape)),
                          {count_note(x.shape)});
  return {x.dtype, call.wanted.shape};
}

TensorType infer_expand_dims(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const auto mask = static_cast<std::uint64_t>(call.attributes[0]);
  const auto rank = x.shape.rank() + static_cast<unsigned>(std::popcount(mask));
  if (rank > kMaxRank) call.fail<ShapeError>(1003, "ShapeError", fmt::format("{} axes, more than {}", rank, kMaxRank));
  if (mask >> rank != 0)
    call.fail<IndexError>(1201, "IndexError",
                          fmt::format("new axis {} is out of range for {} axes", std::bit_width(mask) - 1, rank));
  Shape shape;
  std::size_t next = 0;
  for (unsigned axis = 0; axis < rank; ++axis) shape.push_back((mask >> axis & 1) != 0 ? 1 : x.shape[next++]);
  return {x.dtype, shape};
}

TensorType infer_squeeze(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const auto mask = static_cast<std::uint64_t>(call.attributes[0]);
  if (mask >> x.shape.rank() != 0)
    normalize_axis(name(call.op), static_cast<std::int64_t>(std::bit_width(mask)) - 1, x, call.where);
  Shape shape;
  for (unsigned axis = 0; axis < x.shape.rank(); ++axis) {
    if ((mask >> axis & 1) == 0)
      shape.push_back(x.shape[axis]);
    else if (x.shape[axis] != 1)
      call.fail<ShapeError>(1014, "ShapeError", fmt::format("axis {} has size {}, not 1", axis, x.shape[axis]));
  }
  return {x.dtype, shape};
}

TensorType infer_permute(const InferCall& call) {
  const TensorType& x = call.operand(0);
  Shape shape;
  unsigned seen = 0;
  for (const std::int64_t axis : call.attributes) {
    if (axis < 0 || axis >= x.shape.rank()) break;
    seen |= 1u << axis;
    if (shape.rank() < kMaxRank) shape.push_back(x.shape[static_cast<std::size_t>(axis)]);
  }
  if (call.attributes.size() != x.shape.rank() || seen + 1u != 1u << x.shape.rank())
    call.fail<ValueError>(1302, "ValueError",
                          fmt::format("{} does not name each axis once", to_string(call.attributes)));
  return {x.dtype, shape};
}

TensorType infer_slice(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const std::size_t rank = x.shape.rank();
  if (call.attributes.size() != 2 * rank || call.wanted.shape.rank() != rank)
    call.fail<ValueError>(1305, "ValueError", "needs a start, a step and a count for every axis");
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t start = call.attributes[axis], step = call.attributes[rank + axis];
    const std::int64_t count = call.wanted.shape[axis], size = x.shape[axis];
    if (step == 0) call.fail<ValueError>(1303, "ValueError", fmt::format("the step along axis {} is 0", axis));
    if (count == 0) continue;
    std::int64_t last = 0;
    const bool overflow = __builtin_mul_overflow(count - 1, step, &last) || __builtin_add_overflow(last, start, &last);
    if (count < 0 || overflow || start < 0 || start >= size || last < 0 || last >= size)
      call.fail<IndexError>(1203, "IndexError",
                            fmt::format("{} elements from {} by {} leave axis {}", count, start, step, axis),
                            {fmt::format("axis {} is {}", axis, size)});
  }
  return {x.dtype, call.wanted.shape};
}

TensorType infer_broadcast_to(const InferCall& call) {
  const TensorType& x = call.operand(0);
  check_shape(name(call.op), call.wanted.shape, x.dtype, call.where);
  const auto common = broadcast_shapes(x.shape, call.wanted.shape);
  if (!common || *common != call.wanted.shape)
    call.fail<ShapeError>(1007, "ShapeError", fmt::format("cannot stretch to {}", to_string(call.wanted.shape)));
  return {x.dtype, call.wanted.shape};
}

TensorType infer_concat(const InferCall& call) {
  if (call.operands.empty()) call.fail<ShapeError>(1012, "ShapeError", "needs at least one tensor");
  const TensorType& first = call.operand(0);
  const unsigned axis = call.axis_attribute(first);
  Shape shape = first.shape;
  for (std::size_t i = 1; i < call.operands.size(); ++i) {
    const TensorType& next = call.operand(i);
    call.require_same_dtype(0, i);
    Shape expected = first.shape;
    if (next.shape.rank() == expected.rank()) expected[axis] = next.shape[axis];
    if (next.shape != expected)
      call.fail<ShapeError>(1008, "ShapeError", fmt::format("shapes differ other than along axis {}", axis));
    if (__builtin_add_overflow(shape[axis], next.shape[axis], &shape[axis])) shape[axis] = INT64_MAX;
  }
  return call.result(first.dtype, shape);
}

/// x with axis `axis` replaced by the axes of `index`.
Shape gathered_shape(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const unsigned axis = call.axis_attribute(x);
  std::vector<std::int64_t> sizes(x.shape.begin(), x.shape.begin() + axis);
  sizes.insert(sizes.end(), call.operand(1).shape.begin(), call.operand(1).shape.end());
  sizes.insert(sizes.end(), x.shape.begin() + axis + 1, x.shape.end());
  check_shape(name(call.op), sizes, x.dtype, call.where);
  return Shape(sizes);
}

TensorType infer_take(const InferCall& call) {
  call.require_index_dtype();
  const TensorType& x = call.operand(0);
  const TensorType result{x.dtype, gathered_shape(call)};
  const unsigned axis = call.axis_attribute(x);
  if (x.shape[axis] == 0 && element_count(call.operand(1).shape) != 0)
    call.fail<ShapeError>(1009, "ShapeError", "no elements to choose from", {fmt::format("axis {} is 0", axis)});
  return result;
}

TensorType infer_index_add(const InferCall& call) {
  call.require_index_dtype();
  call.require_same_dtype(0, 2);
  if (!kNumbers.has(call.operand(0).dtype)) call.refuse_dtype(0);
  const Shape expected = gathered_shape(call);
  if (call.operand(2).shape != expected)
    call.fail<ShapeError>(1011, "ShapeError", "the source does not fit", {"", "", "should be " + to_string(expected)});
  return call.operand(0);
}

TensorType infer_update(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const TensorType& values = call.operand(1);
  call.require_same_dtype(0, 1);
  if (call.attributes.size() != 1 + values.shape.rank())
    call.fail<ValueError>(1305, "ValueError", "needs an offset and a stride for every axis of the values");
  if (element_count(values.shape) == 0) return x;
  std::int64_t lowest = call.attributes[0], highest = lowest, reach = 0;
  bool overflow = false;
  for (std::size_t i = 0; i < values.shape.rank(); ++i) {
    overflow |= __builtin_mul_overflow(values.shape[i] - 1, call.attributes[1 + i], &reach);
    std::int64_t& end = reach < 0 ? lowest : highest;
    overflow |= __builtin_add_overflow(end, reach, &end);
  }
  if (overflow || lowest < 0 || highest >= element_count(x.shape))
    call.fail<IndexError>(1203, "IndexError", "the view leaves the tensor",
                          {count_note(x.shape), fmt::format("go to elements {} to {}", lowest, highest)});
  return x;
}

}  // namespace

Shape resolve_reshape(std::span<const std::int64_t> sizes, const TensorType& operand, std::source_location where) {
  const InferCall call{Op::reshape, {&operand, 1}, {}, operand, where};
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open == sizes.end() || sizes.size() > kMaxRank) {
    check_shape(name(Op::reshape), sizes, operand.dtype, where);
    return Shape(sizes);
  }
  if (std::find(open + 1, sizes.end(), -1) != sizes.end())
    call.fail<ValueError>(1304, "ValueError", fmt::format("more than one -1 in {}", to_string(sizes)));
  Shape shape(sizes);
  std::int64_t& left_over = shape[static_cast<std::size_t>(open - sizes.begin())];
  left_over = 1;
  const std::int64_t known = check_shape(name(Op::reshape), shape, operand.dtype, where);
  const std::int64_t count = element_count(operand.shape);
  if (known == 0 || count % known != 0)
    call.fail<ShapeError>(1006, "ShapeError", fmt::format("no size for the -1 in {} fits", to_string(sizes)),
                          {count_note(operand.shape)});
  left_over = count / known;
  return shape;
}

TensorType infer_irregular(const InferCall& call) {
  const auto with = [&](std::size_t operands, std::size_t attributes, auto* rule) {
    require_arguments(call, operands, attributes);
    return rule(call);
  };
  const auto given = [](const InferCall& c) { return c.result(c.wanted.dtype, c.wanted.shape); };
  const std::size_t attributes = call.attributes.size();
  switch (call.op) {
    case Op::input: return given(call);
    case Op::full: call.require_wanted_dtype(kNumbersOrBoolean, "a number or bool"); return given(call);
    case Op::copy:
      return with(
          1, 0, +[](const InferCall& c) { return c.operand(0); });
    case Op::iota: return with(0, 1, infer_iota);
    case Op::cast: return with(1, 0, infer_cast);
    case Op::reshape: return with(1, 0, infer_reshape);
    case Op::expand_dims: return with(1, 1, infer_expand_dims);
    case Op::squeeze: return with(1, 1, infer_squeeze);
    case Op::permute: return with(1, attributes, infer_permute);
    case Op::slice: return with(1, attributes, infer_slice);
    case Op::broadcast_to: return with(1, 0, infer_broadcast_to);
    case Op::concat: return with(call.operands.size(), 1, infer_concat);
    case Op::take: return with(2, 1, infer_take);
    case Op::index_add: return with(3, 1, infer_index_add);
    case Op::update: return with(2, attributes, infer_update);
    case Op::matmul: return with(2, 0, infer_matmul);
    case Op::matmul_i32: return with(2, 0, infer_matmul_i32);
    case Op::matmul_packed: return with(2, 1, infer_matmul_packed);
    case Op::csr_matmul: return with(3, 2, infer_csr_matmul);
    case Op::csr_sampled_matmul: return with(3, 0, infer_csr_sampled_matmul);
    case Op::gather: return with(2, 1, infer_gather);
    case Op::scatter:
    case Op::scatter_add:
    case Op::scatter_multiply:
    case Op::scatter_maximum:
    case Op::scatter_minimum: return with(3, 1, infer_scatter);
    case Op::unfold: return with(1, 4, infer_unfold);
    case Op::fold: return with(1, 3, infer_fold);
    case Op::convolution: return with(2, attributes, infer_convolution);
    case Op::convolution_data_gradient: return with(2, attributes, infer_convolution_data_gradient);
    case Op::convolution_weight_gradient: return with(2, attributes, infer_convolution_weight_gradient);
    case Op::cond:
    case Op::while_loop:
    case Op::scan: return given(call);
    case Op::unpack: return with(1, 1, infer_unpack);
    case Op::after: return with(2, 0, infer_after);
    default:
      if (auto type = infer_ordering(call)) return *std::move(type);
      return infer_linalg(call);
  }
}

}  // namespace fermata

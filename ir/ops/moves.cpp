// See moves.h.
#include "ir/ops/moves.h"

#include <fmt/format.h>

namespace fermata::ops {
namespace {

std::string count_note(const Shape& shape) {
  const std::int64_t count = element_count(shape);
  return fmt::format("{} element{}", count, count == 1 ? "" : "s");
}

}  // namespace

TensorType Cast::infer(const InferCall& call) const {
  const DType from = call.operand(0).dtype;
  if (!kStored.has(from)) call.refuse_dtype(0);
  call.require_wanted_dtype(kStored, "a number or bool");
  if (is_complex(from) && (kReal | kSmall).has(call.wanted.dtype))
    call.fail<DTypeError>(1110, "DTypeError",
                          fmt::format("{} does not convert to {}", name(from), name(call.wanted.dtype)), {},
                          "take its real(), imag() or abs() first");
  return call.result(call.wanted.dtype, call.operand(0).shape);
}

ValueId Cast::emit(KernelEmitter& emitter) const {
  return emitter.rounded(emitter.convert(emitter.convert(emitter.operand(0), dtype.value), compute_dtype(dtype.value)));
}

Example<Cast> Cast::example() { return {{{DType::f32, Shape{3, 4}}}, {.dtype = {DType::i32}}}; }

TensorType Concat::infer(const InferCall& call) const {
  if (call.operands.empty()) call.fail<ShapeError>(1012, "ShapeError", "requires at least one tensor");
  const TensorType& first = call.operand(0);
  const unsigned axis = call.axis(this->axis.value, first);
  Shape shape = first.shape;
  for (std::size_t i = 1; i < call.operands.size(); ++i) {
    const TensorType& next = call.operand(i);
    call.require_same_dtype(0, i);
    Shape expected = first.shape;
    if (next.shape.rank() == expected.rank()) expected[axis] = next.shape[axis];
    if (next.shape != expected)
      call.fail<ShapeError>(1008, "ShapeError", fmt::format("shapes differ in an axis other than {}", axis));
    if (__builtin_add_overflow(shape[axis], next.shape[axis], &shape[axis])) shape[axis] = INT64_MAX;
  }
  return call.result(first.dtype, shape);
}

TensorType Update::infer(const InferCall& call) const {
  const TensorType& x = call.operand(0);
  const TensorType& values = call.operand(1);
  call.require_same_dtype(0, 1);
  if (strides.value.size() != values.shape.rank())
    call.fail<ValueError>(1305, "ValueError", "needs an offset and a stride for every axis of the values");
  if (element_count(values.shape) == 0) return x;
  std::int64_t lowest = offset.value, highest = lowest, reach = 0;
  bool overflow = false;
  for (std::size_t i = 0; i < values.shape.rank(); ++i) {
    overflow |= __builtin_mul_overflow(values.shape[i] - 1, strides.value[i], &reach);
    std::int64_t& end = reach < 0 ? lowest : highest;
    overflow |= __builtin_add_overflow(end, reach, &end);
  }
  if (overflow || lowest < 0 || highest >= element_count(x.shape))
    call.fail<IndexError>(1203, "IndexError", "the view exceeds the tensor",
                          {count_note(x.shape), fmt::format("go to elements {} to {}", lowest, highest)});
  return x;
}

Example<Update> Update::example() {
  static constexpr std::int64_t kStrides[] = {4, 2};
  return {{{DType::f32, Shape{4, 4}}, {DType::f32, Shape{2, 2}}}, {.offset = {1}, .strides = {kStrides}}};
}

TensorType ComplexOfParts::infer(const InferCall& call) const {
  for (std::size_t i = 0; i < 2; ++i)
    if (call.operand(i).dtype != DType::f32 && call.operand(i).dtype != DType::f64)
      call.fail<DTypeError>(1101, "DTypeError", fmt::format("does not take {}", name(call.operand(i).dtype)), {},
                            "parts must be f32 or f64");
  call.require_same_dtype(0, 1);
  if (call.operand(0).shape != call.operand(1).shape)
    call.fail<ShapeError>(1091, "ShapeError", "the parts differ in shape");
  return call.result(complex_dtype(call.operand(0).dtype), call.operand(0).shape);
}

}  // namespace fermata::ops

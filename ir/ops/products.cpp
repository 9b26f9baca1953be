// See products.h.
#include "ir/ops/products.h"

#include <fmt/format.h>

#include "ir/packed_weights.h"

namespace fermata::ops {
namespace {

constexpr DTypeSet kBytes = DTypeSet(DType::i8) | DType::u8;
constexpr DTypeSet kHalves = DTypeSet(DType::f16) | DType::bf16;
/// What packed weights are multiplied by.
constexpr DTypeSet kWithWeights = DTypeSet(DType::f16) | DType::bf16 | DType::f32;
/// What sparse kernels compute in; callers cast f16 and bf16.
constexpr DTypeSet kComputed = kIntegers | DType::f32 | DType::f64;

/// Shapes of a product over the last axis of the left and the second-last of the right operand.
TensorType product(const InferCall& call, DType result) {
  const TensorType& lhs = call.operand(0);
  const TensorType& rhs = call.operand(1);
  for (std::size_t i = 0; i < 2; ++i)
    if (call.operand(i).shape.empty())
      call.fail<ShapeError>(1010, "ShapeError", "a 0-d tensor has no rows", {}, "use multiply to scale a tensor");
  // A vector on the left is a row, on the right a column; the axis that this adds is removed from the result.
  const std::size_t left_axes = lhs.shape.rank() == 1 ? 1 : 2, right_axes = rhs.shape.rank() == 1 ? 1 : 2;
  const std::size_t left_contracted = lhs.shape.rank() - 1, right_contracted = rhs.shape.rank() - right_axes;
  const std::int64_t k = lhs.shape.back(), rows_of_rhs = rhs.shape[right_contracted];
  if (k != rows_of_rhs)
    call.fail<ShapeError>(1004, "ShapeError", fmt::format("contracted sizes differ ({} and {})", k, rows_of_rhs),
                          {fmt::format("axis {} is {}", left_contracted, k),
                           fmt::format("axis {} is {}", right_contracted, rows_of_rhs)});
  Shape shape = call.broadcast(std::span(lhs.shape).first(lhs.shape.rank() - left_axes),
                               std::span(rhs.shape).first(rhs.shape.rank() - right_axes), 0, 1);
  if (left_axes == 2) shape.push_back(lhs.shape[lhs.shape.rank() - 2u]);
  if (right_axes == 2) shape.push_back(rhs.shape.back());
  return call.result(result, shape);
}

/// The sizes of a sparse pattern: row offsets and then columns, in one tensor.
void require_pattern(const InferCall& call, std::int64_t rows, std::int64_t entries) {
  const TensorType& pattern = call.operand(0);
  if (pattern.dtype != DType::i64 || pattern.shape.rank() != 1)
    call.fail<DTypeError>(1103, "DTypeError", "a pattern is one axis of i64");
  if (rows < 0 || entries < 0 || pattern.shape[0] != rows + 1 + entries)
    call.fail<ShapeError>(1050, "ShapeError", "the pattern does not match",
                          {fmt::format("{} row offsets and columns", pattern.shape[0])});
}

/// Operands 1 and 2 are of one dtype that the kernels compute in.
void require_computed(const InferCall& call) {
  for (std::size_t i = 1; i < 3; ++i)
    if (!kComputed.has(call.operand(i).dtype)) call.refuse_dtype(i);
  call.require_same_dtype(1, 2);
}

void require_rank(const InferCall& call, std::size_t i, unsigned rank) {
  if (call.operand(i).shape.rank() == rank) return;
  std::vector<std::string> notes(call.operands.size());
  notes[i] = fmt::format("should have {}", rank == 1 ? "one axis" : "two axes");
  call.fail<ShapeError>(1015, "ShapeError", "a vector must have one axis and a matrix two", notes);
}

/// The type of rows times a packed matrix, which has to be one of so many columns.
TensorType rows_times_columns(const InferCall& call, bool fits, std::int64_t columns, DType result) {
  Shape shape = call.operand(0).shape;
  if (!fits)
    call.fail<ShapeError>(1050, "ShapeError",
                          fmt::format("the blocks are not those of [{}, {}]", shape.back(), columns));
  shape[shape.rank() - 1u] = columns;
  return call.result(result, shape);
}

}  // namespace

TensorType Matmul::infer(const InferCall& call) const {
  for (std::size_t i = 0; i < 2; ++i)
    if (!kNumbers.has(call.operand(i).dtype)) call.refuse_dtype(i);
  if (!call.operand(0).shape.empty() && !call.operand(1).shape.empty()) call.require_same_dtype(0, 1);
  return product(call, call.operand(0).dtype);
}

void Matmul::relate(EqualAxes& equal) const {
  const unsigned left = equal.rank_of(0), right = equal.rank_of(1), rank = equal.rank();
  if (left < 2 || right < 2) return;
  equal.result(rank - 2, 0, left - 2);
  equal.result(rank - 1, 1, right - 1);
  equal.join({0, left - 1}, {1, right - 2});
}

TensorType MatmulBytes::infer(const InferCall& call) const {
  for (std::size_t i = 0; i < 2; ++i)
    if (!kBytes.has(call.operand(i).dtype)) call.refuse_dtype(i);
  return product(call, DType::i32);
}

TensorType MatmulHalves::infer(const InferCall& call) const {
  for (std::size_t i = 0; i < 2; ++i)
    if (!kHalves.has(call.operand(i).dtype)) call.refuse_dtype(i);
  call.require_same_dtype(0, 1);
  return product(call, DType::f32);
}

TensorType MatmulPacked::infer(const InferCall& call) const {
  const TensorType &x = call.operand(0), &packed = call.operand(1);
  if (!kBytes.has(x.dtype)) call.refuse_dtype(0);
  if (packed.dtype != DType::i8) call.refuse_dtype(1);
  if (x.shape.empty()) call.fail<ShapeError>(1010, "ShapeError", "a 0-d tensor has no rows");
  const std::int64_t k = x.shape.back(), columns = this->columns.value;
  // K is padded to the 64 that a block of a library's kernel spans.
  const bool fits = packed.shape.rank() == 4 && columns >= 0 && packed.shape[0] == columns / 64 + (columns % 64 != 0) &&
                    packed.shape[1] == (k / 64 + (k % 64 != 0)) * 16 && packed.shape[2] == 64 && packed.shape[3] == 4;
  return rows_times_columns(call, fits, columns, DType::i32);
}

TensorType MatmulWeights::infer(const InferCall& call) const {
  const TensorType &x = call.operand(0), &packed = call.operand(1);
  if (!kWithWeights.has(x.dtype)) call.refuse_dtype(0);
  if (packed.dtype != DType::u8) call.refuse_dtype(1);
  if (x.shape.empty()) call.fail<ShapeError>(1010, "ShapeError", "a 0-d tensor has no rows");
  const bool fits = PackedWeights::of(packed.shape, columns.value, x.shape.back()).has_value();
  return rows_times_columns(call, fits, columns.value, x.dtype);
}

Example<MatmulWeights> MatmulWeights::example() {
  const PackedWeights form{.rows = 5, .columns = 4, .group = 0};
  return {{{DType::f32, Shape{3, 4}}, {DType::u8, form.shape()}}, {.columns = {5}}};
}

void MatmulPacked::relate(EqualAxes& equal) const {
  for (unsigned i = 0; i + 1 < equal.rank(); ++i) equal.result(i, 0, i);
}

TensorType CsrMatmul::infer(const InferCall& call) const {
  require_computed(call);
  require_rank(call, 1, 1), require_rank(call, 2, 2);
  const std::int64_t entries = call.operand(1).shape[0], columns = this->columns.value;
  const std::int64_t rows = call.operand(0).shape.rank() == 1 ? call.operand(0).shape[0] - 1 - entries : 0;
  require_pattern(call, rows, entries);
  const std::int64_t contracted = transposed.value ? rows : columns, given = call.operand(2).shape[0];
  if (given != contracted || columns < 0)
    call.fail<ShapeError>(1004, "ShapeError", fmt::format("contracted sizes differ ({} and {})", contracted, given),
                          {"", "", fmt::format("axis 0 is {}", given)});
  return call.result(call.operand(2).dtype, Shape{transposed.value ? columns : rows, call.operand(2).shape[1]});
}

TensorType CsrSampledMatmul::infer(const InferCall& call) const {
  require_computed(call);
  require_rank(call, 1, 2), require_rank(call, 2, 2);
  const std::int64_t rows = call.operand(1).shape[0];
  const std::int64_t entries = call.operand(0).shape.rank() == 1 ? call.operand(0).shape[0] - 1 - rows : 0;
  require_pattern(call, rows, entries);
  const std::int64_t left = call.operand(1).shape[1], right = call.operand(2).shape[1];
  if (left != right)
    call.fail<ShapeError>(1004, "ShapeError", fmt::format("contracted sizes differ ({} and {})", left, right),
                          {"", fmt::format("axis 1 is {}", left), fmt::format("axis 1 is {}", right)});
  return call.result(call.operand(1).dtype, Shape{entries});
}

}  // namespace fermata::ops

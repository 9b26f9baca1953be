// See linalg.h.
#include "ir/ops/linalg.h"

#include <fmt/format.h>

#include <algorithm>

namespace fermata::ops {
namespace {

/// What the kernels of linear algebra and the transforms compute in.
constexpr DTypeSet kSolved = DTypeSet(DType::f32) | DType::f64 | kComplex;

void require_solved(const InferCall& call, std::size_t i) {
  const DType dtype = call.operand(i).dtype;
  if (kSolved.has(dtype)) return;
  if (is_quantized(dtype)) call.refuse_dtype(i);
  call.fail<DTypeError>(1101, "DTypeError", fmt::format("does not take {}", name(dtype)), {},
                        "cast it to f32 or f64 first");
}

/// The last two axes are a matrix.
void require_matrix(const InferCall& call, std::size_t i) {
  require_solved(call, i);
  if (call.operand(i).shape.rank() >= 2) return;
  std::vector<std::string> notes(call.operands.size());
  notes[i] = "should have at least two axes";
  call.fail<ShapeError>(1015, "ShapeError", "a matrix must have two axes", notes);
}

void require_square(const InferCall& call, std::size_t i) {
  require_matrix(call, i);
  const Shape& shape = call.operand(i).shape;
  const std::int64_t rows = shape[shape.rank() - 2u], columns = shape.back();
  if (rows == columns) return;
  std::vector<std::string> notes(call.operands.size());
  notes[i] = fmt::format("{} rows, {} columns", rows, columns);
  call.fail<ShapeError>(1090, "ShapeError", "the matrix is not square", notes);
}

std::span<const std::int64_t> batch_of(const Shape& shape) { return std::span(shape).first(shape.rank() - 2u); }
std::int64_t rows_of(const TensorType& x) { return x.shape[x.shape.rank() - 2u]; }
std::int64_t columns_of(const TensorType& x) { return x.shape.back(); }

TensorType matrices(const InferCall& call, DType dtype, std::initializer_list<std::int64_t> last) {
  Shape shape(batch_of(call.operand(0).shape));
  for (const std::int64_t size : last) shape.push_back(size);
  return call.result(dtype, shape);
}

/// The operand, which is a stack of square matrices.
const TensorType& square(const InferCall& call) {
  require_square(call, 0);
  return call.operand(0);
}

TensorType solved(const InferCall& call) {
  require_square(call, 0), require_matrix(call, 1);
  call.require_same_dtype(0, 1);
  const std::int64_t n = columns_of(call.operand(0)), rows = rows_of(call.operand(1));
  if (n != rows)
    call.fail<ShapeError>(1004, "ShapeError", fmt::format("contracted sizes differ ({} and {})", n, rows),
                          {fmt::format("{} columns", n), fmt::format("{} rows", rows)});
  Shape shape = call.broadcast(batch_of(call.operand(0).shape), batch_of(call.operand(1).shape), 0, 1);
  shape.push_back(rows), shape.push_back(columns_of(call.operand(1)));
  return call.result(call.operand(0).dtype, shape);
}

/// The operand of a transform along an axis that is not empty: its dtype is one of those, and its shape.
Shape transformed(const InferCall& call, std::int64_t axis, bool from_real) {
  const TensorType& x = call.operand(0);
  if (from_real ? x.dtype != DType::f32 && x.dtype != DType::f64 : !is_complex(x.dtype))
    call.fail<DTypeError>(1101, "DTypeError", fmt::format("does not take {}", name(x.dtype)), {},
                          !from_real            ? "cast it to c64 or c128 first"
                          : is_complex(x.dtype) ? "use fft for complex numbers"
                                                : "cast it to f32 or f64 first");
  const unsigned along = call.axis(axis, x);
  if (x.shape[along] == 0)
    call.fail<ShapeError>(1093, "ShapeError", "no elements to transform", {fmt::format("axis {} is 0", along)});
  return x.shape;
}

}  // namespace

TensorType Cholesky::infer(const InferCall& call) const { return square(call); }
TensorType Solve::infer(const InferCall& call) const { return solved(call); }
TensorType SolveTriangular::infer(const InferCall& call) const { return solved(call); }
TensorType MatrixOfMatrix::infer(const InferCall& call) const { return square(call); }
TensorType Det::infer(const InferCall& call) const { return matrices(call, square(call).dtype, {}); }
TensorType Slogdet::infer(const InferCall& call) const { return matrices(call, square(call).dtype, {2}); }

TensorType Eigh::infer(const InferCall& call) const {
  const TensorType& x = square(call);
  return matrices(call, x.dtype, {rows_of(x) + 1, rows_of(x)});
}

TensorType Eigvalsh::infer(const InferCall& call) const {
  const TensorType& x = square(call);
  return matrices(call, real_dtype(x.dtype), {rows_of(x)});
}

TensorType Qr::infer(const InferCall& call) const {
  require_matrix(call, 0);
  const std::int64_t m = rows_of(call.operand(0)), n = columns_of(call.operand(0));
  return matrices(call, call.operand(0).dtype, {m + n, complete.value ? m : std::min(m, n)});
}

TensorType Svd::infer(const InferCall& call) const {
  require_matrix(call, 0);
  const std::int64_t m = rows_of(call.operand(0)), n = columns_of(call.operand(0));
  return matrices(call, call.operand(0).dtype, {m + 1 + n, full.value ? std::max(m, n) : std::min(m, n)});
}

TensorType Pinv::infer(const InferCall& call) const {
  require_matrix(call, 0);
  const TensorType &a = call.operand(0), &tolerance = call.operand(1);
  if (tolerance.dtype != real_dtype(a.dtype))
    call.fail<DTypeError>(
        1102, "DTypeError",
        fmt::format("the tolerance must be {}, not {}", name(real_dtype(a.dtype)), name(tolerance.dtype)));
  if (tolerance.shape != Shape(batch_of(a.shape)))
    call.fail<ShapeError>(1092, "ShapeError", "requires one tolerance per matrix",
                          {"", "should be " + to_string(batch_of(a.shape))});
  return matrices(call, a.dtype, {columns_of(a), rows_of(a)});
}

TensorType Svdvals::infer(const InferCall& call) const {
  require_matrix(call, 0);
  const TensorType& a = call.operand(0);
  return matrices(call, real_dtype(a.dtype), {std::min(rows_of(a), columns_of(a))});
}

TensorType Fft::infer(const InferCall& call) const {
  return call.result(call.operand(0).dtype, transformed(call, axis.value, false));
}

TensorType Rfft::infer(const InferCall& call) const {
  Shape shape = transformed(call, axis.value, true);
  const unsigned along = call.axis(axis.value, call.operand(0));
  shape[along] = shape[along] / 2 + 1;
  return call.result(complex_dtype(call.operand(0).dtype), shape);
}

TensorType Irfft::infer(const InferCall& call) const {
  Shape shape = transformed(call, axis.value, false);
  const unsigned along = call.axis(axis.value, call.operand(0));
  const std::int64_t given = shape[along];
  shape[along] = count.value;
  if (count.value < 1 || count.value / 2 + 1 != given)
    call.fail<ShapeError>(1093, "ShapeError",
                          fmt::format("{} results need {} numbers", count.value, count.value / 2 + 1),
                          {fmt::format("axis {} is {}", along, given)});
  return call.result(real_dtype(call.operand(0).dtype), shape);
}

TensorType Dct::infer(const InferCall& call) const {
  const Shape shape = transformed(call, axis.value, true);
  const std::int64_t n = shape[call.axis(axis.value, call.operand(0))];
  if (type.value < 1 || type.value > 4 || (type.value == 1 && n < 2))
    call.fail<ValueError>(1416, "ValueError", fmt::format("no transform of type {} of {} elements", type.value, n));
  return call.result(call.operand(0).dtype, shape);
}

}  // namespace fermata::ops

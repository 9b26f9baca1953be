// Inference of complex numbers from their parts, linear algebra and Fourier transforms.
#include <fmt/format.h>

#include <algorithm>

#include "ir/infer_call.h"

namespace fermata {
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
  notes[i] = "should have two axes or more";
  call.fail<ShapeError>(1015, "ShapeError", "a matrix has two axes", notes);
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

TensorType infer_complex(const InferCall& call) {
  for (std::size_t i = 0; i < 2; ++i)
    if (call.operand(i).dtype != DType::f32 && call.operand(i).dtype != DType::f64)
      call.fail<DTypeError>(1101, "DTypeError", fmt::format("does not take {}", name(call.operand(i).dtype)), {},
                            "parts are f32 or f64");
  call.require_same_dtype(0, 1);
  if (call.operand(0).shape != call.operand(1).shape)
    call.fail<ShapeError>(1091, "ShapeError", "the parts differ in shape");
  return call.result(complex_dtype(call.operand(0).dtype), call.operand(0).shape);
}

TensorType infer_solve(const InferCall& call) {
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

TensorType infer_qr(const InferCall& call) {
  require_matrix(call, 0);
  const std::int64_t m = rows_of(call.operand(0)), n = columns_of(call.operand(0));
  return matrices(call, call.operand(0).dtype, {m + n, call.attributes[0] != 0 ? m : std::min(m, n)});
}

TensorType infer_svd(const InferCall& call) {
  require_matrix(call, 0);
  const std::int64_t m = rows_of(call.operand(0)), n = columns_of(call.operand(0));
  return matrices(call, call.operand(0).dtype, {m + 1 + n, call.attributes[0] != 0 ? std::max(m, n) : std::min(m, n)});
}

TensorType infer_pinv(const InferCall& call) {
  require_matrix(call, 0);
  const TensorType &a = call.operand(0), &tolerance = call.operand(1);
  if (tolerance.dtype != real_dtype(a.dtype))
    call.fail<DTypeError>(
        1102, "DTypeError",
        fmt::format("the tolerance must be {}, not {}", name(real_dtype(a.dtype)), name(tolerance.dtype)));
  if (tolerance.shape != Shape(batch_of(a.shape)))
    call.fail<ShapeError>(1092, "ShapeError", "needs one tolerance for each matrix",
                          {"", "should be " + to_string(batch_of(a.shape))});
  return matrices(call, a.dtype, {columns_of(a), rows_of(a)});
}

TensorType infer_svdvals(const InferCall& call) {
  require_matrix(call, 0);
  const TensorType& a = call.operand(0);
  return matrices(call, real_dtype(a.dtype), {std::min(rows_of(a), columns_of(a))});
}

/// Transforms: the axis, and its size before and after. Complex numbers for fft and irfft, real ones for rfft.
TensorType infer_transform(const InferCall& call) {
  const TensorType& x = call.operand(0);
  const bool from_real = call.op == Op::rfft, to_real = call.op == Op::irfft;
  if (from_real ? x.dtype != DType::f32 && x.dtype != DType::f64 : !is_complex(x.dtype))
    call.fail<DTypeError>(1101, "DTypeError", fmt::format("does not take {}", name(x.dtype)), {},
                          !from_real            ? "cast it to c64 or c128 first"
                          : is_complex(x.dtype) ? "fft takes complex numbers"
                                                : "cast it to f32 or f64 first");
  const unsigned axis = call.axis_attribute(x);
  Shape shape = x.shape;
  if (shape[axis] == 0)
    call.fail<ShapeError>(1093, "ShapeError", "nothing to transform", {fmt::format("axis {} is 0", axis)});
  if (from_real) shape[axis] = shape[axis] / 2 + 1;
  if (to_real) {
    shape[axis] = call.attributes[1];
    if (shape[axis] < 1 || shape[axis] / 2 + 1 != x.shape[axis])
      call.fail<ShapeError>(1093, "ShapeError",
                            fmt::format("{} results need {} numbers", shape[axis], shape[axis] / 2 + 1),
                            {fmt::format("axis {} is {}", axis, x.shape[axis])});
  }
  return call.result(from_real ? complex_dtype(x.dtype) : to_real ? real_dtype(x.dtype) : x.dtype, shape);
}

}  // namespace

TensorType infer_linalg(const InferCall& call) {
  const auto arguments = [&](std::size_t operands, std::size_t attributes) {
    if (call.operands.size() != operands || call.attributes.size() != attributes)
      throw_internal(call.headline("wrong number of operands or attributes"), call.where);
  };
  const auto square = [&] {
    require_square(call, 0);
    return call.operand(0);
  };
  switch (call.op) {
    case Op::complex: arguments(2, 0); return infer_complex(call);
    case Op::cholesky: arguments(1, 1); return square();
    case Op::inv:
    case Op::cofactor: arguments(1, 0); return square();
    case Op::det: arguments(1, 0); return matrices(call, square().dtype, {});
    case Op::slogdet: arguments(1, 0); return matrices(call, square().dtype, {2});
    case Op::solve: arguments(2, 0); return infer_solve(call);
    case Op::solve_triangular: arguments(2, 2); return infer_solve(call);
    case Op::qr: arguments(1, 1); return infer_qr(call);
    case Op::eigh: arguments(1, 0); return matrices(call, square().dtype, {rows_of(square()) + 1, rows_of(square())});
    case Op::eigvalsh: arguments(1, 0); return matrices(call, real_dtype(square().dtype), {rows_of(square())});
    case Op::svd: arguments(1, 1); return infer_svd(call);
    case Op::svdvals: arguments(1, 0); return infer_svdvals(call);
    case Op::pinv: arguments(2, 0); return infer_pinv(call);
    case Op::fft: arguments(1, 2); return infer_transform(call);
    case Op::rfft: arguments(1, 1); return infer_transform(call);
    case Op::irfft: arguments(1, 2); return infer_transform(call);
    default: throw_internal(call.headline("no inference"), call.where);
  }
}

}  // namespace fermata

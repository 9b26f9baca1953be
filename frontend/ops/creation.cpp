// See fermata/creation.h and fermata/values.h.
#include "fermata/creation.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "fermata/complex.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/values.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

DType default_dtype_of(const Scalar& value) {
  if (value.kind == DTypeKind::boolean) return DType::boolean;
  return value.kind == DTypeKind::floating ? DType::f32 : DType::i64;
}

Tensor filled(std::string_view function, const IntegerList& sizes, const Scalar& value, DType dtype, Location where) {
  check_shape(function, sizes, dtype, where);
  const std::uint64_t bits = checked_scalar_bits(function, value, dtype, where);
  const Shape shape(sizes);
  return general_call<Op::full>({.value = {bits}, .shape = {shape}, .dtype = {dtype}}, {}, where);
}

[[noreturn]] void throw_arange(std::string_view what, Location where) {
  throw ValueError(1307, format_error(1307, "ValueError", fmt::format("arange: {}", what), {}, where));
}

void require_complex(std::string_view function, DType dtype, Location where) {
  if (fermata::is_complex(dtype)) return;
  throw DTypeError(
      1104, format_error(1104, "DTypeError",
                         fmt::format("{}: the result must be complex, not {}", function, name(dtype)), {}, where));
}

/// How many steps of a float range lie before stop.
std::int64_t float_count(double start, double stop, double step, Location where) {
  if (!std::isfinite(start) || !std::isfinite(stop) || !std::isfinite(step))
    throw_arange("start, stop and step must be finite", where);
  const double count = std::ceil((stop - start) / step);
  if (count >= 0x1p63) throw_arange("the element count overflows 64 bits", where);
  return count > 0 ? static_cast<std::int64_t>(count) : 0;
}

std::int64_t integer_count(std::int64_t start, std::int64_t stop, std::int64_t step) {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  // Unsigned arithmetic holds every distance between two 64-bit integers.
  const auto from = static_cast<std::uint64_t>(start), to = static_cast<std::uint64_t>(stop);
  const std::uint64_t distance = step > 0 ? to - from : from - to;
  const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : -static_cast<std::uint64_t>(step);
  const std::uint64_t count = (distance - 1) / stride + 1;
  return count > static_cast<std::uint64_t>(INT64_MAX) ? INT64_MAX : static_cast<std::int64_t>(count);
}

/// start + i * step, computed in the dtype `in` and rounded once.
Tensor progression(std::int64_t count, const Scalar& start, const Scalar& step, DType in, DType dtype, Location where) {
  const Tensor index = astype(iota(count, 0, where), in, where);
  const Tensor scaled = multiply({index, where}, step);
  return astype(add({scaled, where}, start), dtype, where);
}

}  // namespace

Tensor zeros(const IntegerList& sizes, DType dtype, Location where) { return filled("zeros", sizes, 0, dtype, where); }
Tensor ones(const IntegerList& sizes, DType dtype, Location where) { return filled("ones", sizes, 1, dtype, where); }
Tensor full(const IntegerList& sizes, Scalar value, std::optional<DType> dtype, Location where) {
  return filled("full", sizes, value, dtype.value_or(default_dtype_of(value)), where);
}
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype, Location where) { return full_like(x, 0, dtype, where); }
Tensor ones_like(const Tensor& x, std::optional<DType> dtype, Location where) { return full_like(x, 1, dtype, where); }
Tensor full_like(const Tensor& x, Scalar value, std::optional<DType> dtype, Location where) {
  require_defined("full_like", x, where);
  if (is_batched(x)) {  // every element of the batch gets its own, so that each can be written
    const BatchedTensor& b = batched_tensor(x);
    const InsideLevel below(frame_of(b, where).outer);
    return make_batched(full_like(b.physical, value, dtype, where), b.level, b.batched);
  }
  const Tensor result = full(x.shape(), value, dtype.value_or(x.dtype()), device(x), where);
  const ShardedValue* const divided = sharded_value(*x.node());
  return divided != nullptr && divided->is_placed ? constrain(result, *divided->mesh, divided->sharding, where)
                                                  : result;
}

Tensor arange(Scalar start, Scalar stop, Scalar step, std::optional<DType> dtype, Location where) {
  if (step.as_double() == 0) throw_arange("the step is 0", where);
  const auto floating = [](const Scalar& s) { return s.kind == DTypeKind::floating; };
  const bool floats = floating(start) || floating(stop) || floating(step);
  const DType wanted = dtype.value_or(floats ? DType::f32 : DType::i64);
  const std::int64_t count = floats ? float_count(start.as_double(), stop.as_double(), step.as_double(), where)
                                    : integer_count(start.integer, stop.integer, step.integer);
  check_shape("arange", {&count, 1}, wanted, where);
  return progression(count, start, step, floats ? DType::f64 : DType::i64, wanted, where);
}
Tensor arange(Scalar stop, std::optional<DType> dtype, Location where) {
  return arange(stop.kind == DTypeKind::floating ? Scalar(0.0) : Scalar(0), stop, 1, dtype, where);
}

Tensor detail::full_complex(const IntegerList& sizes, std::complex<double> value, std::optional<DType> dtype,
                            Location where) {
  const DType wanted = dtype.value_or(DType::c64);
  require_complex("full", wanted, where);
  check_shape("full", sizes, wanted, where);
  const DType part = real_dtype(wanted);
  return complex({full(sizes, value.real(), part, where), where}, {full(sizes, value.imag(), part, where), where});
}

Tensor linspace(std::complex<double> start, std::complex<double> stop, std::int64_t count, DType dtype, bool endpoint,
                Location where) {
  require_complex("linspace", dtype, where);
  const Tensor re = linspace(start.real(), stop.real(), count, DType::f64, endpoint, where);
  const Tensor im = linspace(start.imag(), stop.imag(), count, DType::f64, endpoint, where);
  return astype(complex({re, where}, {im, where}), dtype, where);
}

Tensor linspace(double start, double stop, std::int64_t count, DType dtype, bool endpoint, Location where) {
  check_shape("linspace", {&count, 1}, dtype, where);
  const std::int64_t steps = endpoint ? count - 1 : count;
  const double step = steps > 0 ? (stop - start) / static_cast<double>(steps) : 0;
  const Tensor inner = progression(count, start, step, DType::f64, DType::f64, where);
  if (!endpoint || count < 2) return astype(inner, dtype, where);
  // The last element is stop itself, not the sum of count - 1 rounded steps.
  const Tensor last = equal({iota(count, 0, where), where}, count - 1);
  return astype(fermata::where({last, where}, stop, inner), dtype, where);
}

Tensor empty_like(const Tensor& x, std::optional<DType> dtype, Location where) {
  require_defined("empty_like", x, where);
  return is_batched(x) ? full_like(x, 0, dtype, where) : empty(x.shape(), dtype.value_or(x.dtype()), device(x), where);
}

Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns, DType dtype, Location where) {
  return eye(rows, columns, 0, dtype, where);
}
Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns, std::int64_t k, DType dtype, Location where) {
  const Shape shape{rows, columns.value_or(rows)};
  check_shape("eye", shape, dtype, where);
  const Tensor column = iota(shape, 1, where);
  const Tensor row = k == 0 ? iota(shape, 0, where) : add({iota(shape, 0, where), where}, k);
  const Tensor diagonal = equal({row, where}, column);
  return astype(diagonal, dtype, where);
}

Tensor iota(const IntegerList& sizes, std::int64_t axis, Location where) {
  check_shape("iota", sizes, DType::i64, where);
  const TensorType type{DType::i64, Shape(sizes)};
  axis = normalize_axis("iota", axis, type, where);
  return general_call<Op::iota>({.axis = {axis}, .shape = {type.shape}}, {}, where, DType::i64);
}

Tensor detail::copy_elements(const void* elements, DType stored, std::int64_t count, const IntegerList& sizes,
                             DType dtype, Location where) {
  const std::int64_t wanted = check_shape("tensor", sizes, stored, where);
  if (wanted != count)
    throw ShapeError(1017, format_error(1017, "ShapeError",
                                        fmt::format("tensor: {} values for shape {}", count,
                                                    to_string(std::span<const std::int64_t>(sizes))),
                                        {}, where));
  const std::size_t bytes = static_cast<std::size_t>(count) * byte_size(stored);
  StoragePtr storage(Storage::allocate(bytes));
  if (bytes != 0) std::memcpy(storage->data, elements, bytes);
  const Tensor result(make_leaf({stored, Shape(sizes)}, storage.release(), BackendKey::cpu, Node::kTensor),
                      DispatchKeySet(BackendKey::cpu) | Functionality::dense);
  return astype(result, dtype, where);
}

Tensor from_buffer(const void* elements, DType dtype, const IntegerList& sizes, Location where) {
  return detail::copy_elements(elements, dtype, check_shape("from_buffer", sizes, dtype, where), sizes, dtype, where);
}

void detail::throw_ragged(Location where) {
  throw ShapeError(1018, format_error(1018, "ShapeError", "tensor: rows differ in length", {}, where));
}

namespace vjp {

FERMATA_OP_RULES(input, kLoop);
FERMATA_OP_RULES(full, kLoop);
FERMATA_OP_RULES(iota, kLoop);

}  // namespace vjp

}  // namespace fermata

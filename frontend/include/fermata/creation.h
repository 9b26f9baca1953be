// Tensors filled with constants or ranges. fermata/values.h creates tensors from C++ values, fermata/random.h from
// random numbers.
//
// Errors: ShapeError for negative sizes, more than 16 axes, or a byte count that overflows 64 bits; UnsupportedError
// for quantized dtypes; ValueError FM1329 for an integer that does not fit the dtype.
#pragma once

#include <complex>
#include <optional>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

Tensor zeros(const IntegerList& sizes, DType dtype = DType::f32, Location where = Location::current());
Tensor ones(const IntegerList& sizes, DType dtype = DType::f32, Location where = Location::current());
/// Fills a tensor with `value`. The default dtype follows the kind of `value`: bool, i64 or f32.
Tensor full(const IntegerList& sizes, Scalar value, std::optional<DType> dtype = {},
            Location where = Location::current());
namespace detail {
Tensor full_complex(const IntegerList& sizes, std::complex<double> value, std::optional<DType> dtype, Location where);
}  // namespace detail
/// Fills a tensor with a complex number. The dtype must be complex; the default is c64.
template <std::floating_point T> Tensor full(const IntegerList& sizes, std::complex<T> value,
                                             std::optional<DType> dtype = {}, Location where = Location::current()) {
  return detail::full_complex(sizes, value, dtype, where);
}
// The same with the shape, and by default the dtype, of another tensor.
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype = {}, Location where = Location::current());
Tensor ones_like(const Tensor& x, std::optional<DType> dtype = {}, Location where = Location::current());
Tensor full_like(const Tensor& x, Scalar value, std::optional<DType> dtype = {}, Location where = Location::current());

/// start, start + step, ..., excluding stop. The default dtype is i64, or f32 if any argument is a float. Floats are
/// computed in f64 and rounded once.
///
/// Errors   ValueError if step is 0 or a bound is not finite.
Tensor arange(Scalar start, Scalar stop, Scalar step = 1, std::optional<DType> dtype = {},
              Location where = Location::current());
/// 0, 1, ..., excluding stop.
Tensor arange(Scalar stop, std::optional<DType> dtype = {}, Location where = Location::current());
/// `count` evenly spaced numbers from start to stop, which is included if `endpoint`. Computed in f64 and rounded once.
Tensor linspace(double start, double stop, std::int64_t count, DType dtype = DType::f32, bool endpoint = true,
                Location where = Location::current());
/// linspace() of complex numbers, in a complex dtype.
Tensor linspace(std::complex<double> start, std::complex<double> stop, std::int64_t count, DType dtype = DType::c64,
                bool endpoint = true, Location where = Location::current());
/// Ones on diagonal k (0 is the main diagonal, positive k is above it), zeros elsewhere. `columns` defaults to `rows`.
Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns = {}, DType dtype = DType::f32,
           Location where = Location::current());
Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns, std::int64_t k, DType dtype = DType::f32,
           Location where = Location::current());
/// Allocates an uninitialized, dense, row-major tensor immediately, in both modes, for a kernel to fill.
///
/// Errors   ShapeError for a size that is negative or too large; OutOfMemoryError; DeviceError FM1403.
Tensor empty(const IntegerList& sizes, DType dtype = DType::f32, Device device = {},
             Location where = Location::current());
Tensor empty_like(const Tensor& x, std::optional<DType> dtype = {}, Location where = Location::current());
/// i64: each element is its index along `axis`.
Tensor iota(const IntegerList& sizes, std::int64_t axis = 0, Location where = Location::current());

}  // namespace fermata

// New tensors: filled or counted. fermata/values.h makes them of C++ values, fermata/random.h of random numbers.
//
// Errors: ShapeError for negative sizes, more than 16 axes, or more bytes than 64 bits count; UnsupportedError for
// quantized dtypes; ValueError FM1329 for an integer that the dtype does not hold.
#pragma once

#include <complex>
#include <optional>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

Tensor zeros(const IntegerList& sizes, DType dtype = DType::f32, Location where = Location::current());
Tensor ones(const IntegerList& sizes, DType dtype = DType::f32, Location where = Location::current());
/// Every element is `value`. The dtype is by default that of its kind: bool, i64 or f32.
Tensor full(const IntegerList& sizes, Scalar value, std::optional<DType> dtype = {},
            Location where = Location::current());
namespace detail {
Tensor full_complex(const IntegerList& sizes, std::complex<double> value, std::optional<DType> dtype, Location where);
}  // namespace detail
/// The same of a complex number. The dtype is by default c64, and has to be complex.
template <std::floating_point T> Tensor full(const IntegerList& sizes, std::complex<T> value,
                                             std::optional<DType> dtype = {}, Location where = Location::current()) {
  return detail::full_complex(sizes, value, dtype, where);
}
// The same with the shape, and by default the dtype, of another tensor.
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype = {}, Location where = Location::current());
Tensor ones_like(const Tensor& x, std::optional<DType> dtype = {}, Location where = Location::current());
Tensor full_like(const Tensor& x, Scalar value, std::optional<DType> dtype = {}, Location where = Location::current());

/// start, start + step, ... before stop. The dtype is by default i64, or f32 if one of them is a float. Floats are
/// computed in f64 and rounded once.
///
/// Errors   ValueError if step is 0 or a bound is not finite.
Tensor arange(Scalar start, Scalar stop, Scalar step = 1, std::optional<DType> dtype = {},
              Location where = Location::current());
/// 0, 1, ... before stop.
Tensor arange(Scalar stop, std::optional<DType> dtype = {}, Location where = Location::current());
/// `count` numbers evenly from start to stop, both included, or without stop unless `endpoint`. Computed in f64 and
/// rounded once.
Tensor linspace(double start, double stop, std::int64_t count, DType dtype = DType::f32, bool endpoint = true,
                Location where = Location::current());
/// The same of complex numbers, in a complex dtype.
Tensor linspace(std::complex<double> start, std::complex<double> stop, std::int64_t count, DType dtype = DType::c64,
                bool endpoint = true, Location where = Location::current());
/// Ones on diagonal k (0 is the main one, positive ones lie above it), zeros elsewhere. `columns` is by default `rows`.
Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns = {}, DType dtype = DType::f32,
           Location where = Location::current());
Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns, std::int64_t k, DType dtype = DType::f32,
           Location where = Location::current());
/// A tensor for a kernel to fill, made now, dense and row-major: nobody else has seen it. The elements are whatever
/// they are.
///
/// Errors   ShapeError for a size that is negative or too large; OutOfMemoryError; DeviceError FM1403.
Tensor empty(const IntegerList& sizes, DType dtype = DType::f32, Device device = {},
             Location where = Location::current());
Tensor empty_like(const Tensor& x, std::optional<DType> dtype = {}, Location where = Location::current());
/// i64: in every element its position along one axis.
Tensor iota(const IntegerList& sizes, std::int64_t axis = 0, Location where = Location::current());

}  // namespace fermata

// Reductions along axes.
#pragma once

#include <utility>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

// One function per row of ir/ops/reduce.def: sum, prod, max, min, all, any, argmax, argmin.
//
// Shapes   `axes` are removed from the result, or kept with size 1 if `keepdims`; negative axes count from the end. An
//          empty list means all axes, no_axes none: each element is reduced by itself. argmax and argmin take one axis
//          or all.
// DType    sum and prod of integers and bool give i64 (u64 for unsigned); max and min keep the dtype; all and any give
//          bool, argmax and argmin i64.
// Errors   IndexError for an axis out of range or named twice; ShapeError for max, min, argmax and argmin of no
//          elements.
#define FERMATA_REDUCE(name, rule, vjp, doc)                                        \
  Tensor name(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false, \
              Location where = Location::current());
#include "ir/ops.def"

// A call with a temporary ends its handle: mean(square(x - y)).sync() stores one number.
#define FERMATA_REDUCE(name, rule, vjp, doc)                                          \
  inline Tensor name(Tensor&& x, const IntegerList& axes = {}, bool keepdims = false, \
                     Location where = Location::current()) {                          \
    return detail::consumed(x, name(std::as_const(x), axes, keepdims, where));        \
  }
#include "ir/ops.def"

/// The arithmetic mean; integers are converted to f32 first. NaN for no elements.
Tensor mean(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current());
/// The mean squared distance from the mean, in two passes. The divisor is the count minus `correction` (1 for the
/// unbiased estimate from a sample); if it is not positive, the result is NaN or infinite.
Tensor var(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
           Location where = Location::current());
/// The square root of var(); `std` in the array API standard.
Tensor stddev(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
              Location where = Location::current());
/// log(sum(exp(x))) without overflow.
Tensor logsumexp(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false,
                 Location where = Location::current());

// With a temporary, as above.
inline Tensor mean(Tensor&& x, const IntegerList& axes = {}, bool keepdims = false,
                   Location where = Location::current()) {
  return detail::consumed(x, mean(std::as_const(x), axes, keepdims, where));
}
inline Tensor var(Tensor&& x, const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
                  Location where = Location::current()) {
  return detail::consumed(x, var(std::as_const(x), axes, keepdims, correction, where));
}
inline Tensor stddev(Tensor&& x, const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
                     Location where = Location::current()) {
  return detail::consumed(x, stddev(std::as_const(x), axes, keepdims, correction, where));
}
inline Tensor logsumexp(Tensor&& x, const IntegerList& axes = {}, bool keepdims = false,
                        Location where = Location::current()) {
  return detail::consumed(x, logsumexp(std::as_const(x), axes, keepdims, where));
}

}  // namespace fermata

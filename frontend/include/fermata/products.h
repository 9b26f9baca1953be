// Products that sum over axes, made of matmul, multiplications and sums.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "fermata/integer_list.h"
#include "fermata/ops.h"

namespace fermata {

/// The last two axes exchanged: a view.
Tensor matrix_transpose(const Tensor& x, Location where = Location::current());

/// Sums over `axes` pairs of axes: the last ones of lhs, in order, with the first ones of rhs. 0 gives all products.
///
/// Errors   ShapeError if an operand has fewer axes or the sizes differ; ValueError for a negative number.
/// Source   Python array API 2023.12, tensordot.
Tensor tensordot(const Tensor& lhs, const Tensor& rhs, std::int64_t axes = 2, Location where = Location::current());
/// The same over named axes: element i of one list goes with element i of the other.
Tensor tensordot(const Tensor& lhs, const Tensor& rhs, const IntegerList& lhs_axes, const IntegerList& rhs_axes,
                 Location where = Location::current());

/// The sum over an axis of conj(lhs) * rhs, which broadcast.
///
/// Errors   ShapeError if the sizes of the axis differ.
/// Source   Python array API 2023.12, vecdot.
Tensor vecdot(const Tensor& lhs, const Tensor& rhs, std::int64_t axis = -1, Location where = Location::current());

/// Einstein's summation: einsum("bij,bjk->bik", {x, y}).
///
/// Each operand has a letter for each axis. Axes with one letter have one size (or 1, which broadcasts) and are
/// multiplied together; those whose letter the result lacks are summed over. A letter twice in an operand takes its
/// diagonal. "..." stands for further axes, which broadcast. Without "->" the result has the letters that occur once,
/// in alphabetical order, after those of "...". Any number of operands: pairs are contracted in the order that costs
/// least at each step, as matrix products where there is something to sum over.
///
/// DType    the promotion of all.
/// Errors   ValueError FM1394 for an equation that cannot be read, or does not fit the number of operands or of their
///          axes; ShapeError FM1094 for sizes that differ.
/// Source   NumPy, einsum.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands, Location where = Location::current());
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands, Location where = Location::current());

}  // namespace fermata

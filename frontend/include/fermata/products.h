// Tensor contractions, composed of matmul, multiplications and sums.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "fermata/integer_list.h"
#include "fermata/ops.h"

namespace fermata {

/// Swaps the last two axes: a view.
Tensor matrix_transpose(const Tensor& x, Location where = Location::current());

/// Contracts the last `axes` axes of lhs with the first ones of rhs, in order. 0 gives the outer product.
///
/// Errors   ShapeError if an operand has fewer axes or the sizes differ; ValueError for a negative number.
/// Source   Python array API 2023.12, tensordot.
Tensor tensordot(const Tensor& lhs, const Tensor& rhs, std::int64_t axes = 2, Location where = Location::current());
/// Contracts axis lhs_axes[i] with axis rhs_axes[i] for every i.
Tensor tensordot(const Tensor& lhs, const Tensor& rhs, const IntegerList& lhs_axes, const IntegerList& rhs_axes,
                 Location where = Location::current());

/// The sum over an axis of conj(lhs) * rhs, which broadcast.
///
/// Errors   ShapeError if the sizes of the axis differ.
/// Source   Python array API 2023.12, vecdot.
Tensor vecdot(const Tensor& lhs, const Tensor& rhs, std::int64_t axis = -1, Location where = Location::current());

/// Einstein's summation: einsum("bij,bjk->bik", {x, y}).
///
/// Each operand has one letter per axis. Axes with the same letter have the same size (or 1, which broadcasts) and are
/// multiplied elementwise; letters that are not in the result are summed over. A repeated letter within an operand
/// takes its diagonal. "..." stands for further axes, which broadcast. Without "->" the result has the letters that
/// occur once, in alphabetical order, after the axes of "...". Any number of operands: pairs are contracted greedily by
/// cost, as matrix products if anything is summed over.
///
/// DType    the promotion of all.
/// Errors   ValueError FM1394 for an equation that cannot be parsed, or does not match the number of operands or their
///          ranks; ShapeError FM1094 for sizes that differ.
/// Source   NumPy, einsum.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands, Location where = Location::current());
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands, Location where = Location::current());

}  // namespace fermata

// Aliases for functions whose PyTorch or NumPy names differ from the array API's. Members of Tensor (runtime/tensor.h)
// have such names too.
//
// Shapes, dtypes and errors are those of the functions that the comments name.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "fermata/linalg.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/random.h"

namespace fermata {

using linalg::cross, linalg::diagonal, linalg::kron, linalg::outer;

// concat() and stack().
Tensor cat(std::span<const Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
Tensor cat(std::initializer_list<Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
Tensor concatenate(std::span<const Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
Tensor concatenate(std::initializer_list<Tensor> tensors, std::int64_t axis = 0, Location where = Location::current());
/// vstack joins along axis 0 and takes vectors as rows; hstack joins along axis 1, or along the only axis of vectors.
Tensor vstack(std::span<const Tensor> tensors, Location where = Location::current());
Tensor vstack(std::initializer_list<Tensor> tensors, Location where = Location::current());
Tensor hstack(std::span<const Tensor> tensors, Location where = Location::current());
Tensor hstack(std::initializer_list<Tensor> tensors, Location where = Location::current());

// Arithmetic: add(), subtract(), ...
Tensor sub(const Operand& lhs, const Operand& rhs);
Tensor mul(const Operand& lhs, const Operand& rhs);
Tensor div(const Operand& lhs, const Operand& rhs);
Tensor true_divide(const Operand& lhs, const Operand& rhs);
Tensor power(const Operand& base, const Operand& exponent);
Tensor mod(const Operand& lhs, const Operand& rhs);
Tensor neg(const Operand& x);
Tensor absolute(const Operand& x);
Tensor clamp(const Operand& x, const Operand& low, const Operand& high);
Tensor arcsin(const Operand& x);
Tensor arccos(const Operand& x);
Tensor arctan(const Operand& x);
Tensor arctan2(const Operand& y, const Operand& x);
Tensor arcsinh(const Operand& x);
Tensor arccosh(const Operand& x);
Tensor arctanh(const Operand& x);
/// Replaces NaN by `nan`, and infinities by the largest and smallest finite numbers of the dtype.
Tensor nan_to_num(const Tensor& x, double nan = 0, Location where = Location::current());

// Comparisons: equal(), less(), ...
Tensor eq(const Operand& lhs, const Operand& rhs);
Tensor ne(const Operand& lhs, const Operand& rhs);
Tensor lt(const Operand& lhs, const Operand& rhs);
Tensor le(const Operand& lhs, const Operand& rhs);
Tensor gt(const Operand& lhs, const Operand& rhs);
Tensor ge(const Operand& lhs, const Operand& rhs);

// Reductions: max(), min(), cumulative_sum(), linalg::vector_norm().
Tensor amax(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current());
Tensor amin(const Tensor& x, const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current());
Tensor norm(const Tensor& x, double ord = 2, const IntegerList& axes = {}, bool keepdims = false,
            Location where = Location::current());
Tensor cumsum(const Tensor& x, std::optional<std::int64_t> axis = {}, Location where = Location::current());
Tensor cumprod(const Tensor& x, std::optional<std::int64_t> axis = {}, Location where = Location::current());
/// unique_values().
Tensor unique(const Tensor& x, Location where = Location::current());

// Products: matmul(), vecdot().
Tensor mm(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());
Tensor bmm(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());
/// Contracts the last axes of both; the result has the other axes of lhs, then those of rhs. NumPy's inner.
Tensor inner(const Tensor& lhs, const Tensor& rhs, Location where = Location::current());
/// For a vector, the matrix with it on diagonal k; for a matrix, its diagonal k.
Tensor diag(const Tensor& x, std::int64_t k = 0, Location where = Location::current());

// Shapes and places: expand_dims(), flatten(), unstack(), take(), where().
Tensor unsqueeze(const Tensor& x, std::int64_t axis, Location where = Location::current());
Tensor ravel(const Tensor& x, Location where = Location::current());
std::vector<Tensor> unbind(const Tensor& x, std::int64_t axis = 0, Location where = Location::current());
/// Splits x into at most `parts` parts of equal size; the last may be smaller.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t parts, std::int64_t axis = 0,
                          Location where = Location::current());
Tensor index_select(const Tensor& x, std::int64_t axis, const Tensor& index, Location where = Location::current());
/// x with elements replaced by `value`, which broadcasts, where the mask is true.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value, Location where = Location::current());

// Random numbers: permutation(), rand(), randn().
Tensor randperm(std::int64_t count, Generator& from = default_generator(), Location where = Location::current());
Tensor rand_like(const Tensor& x, Location where = Location::current());
Tensor randn_like(const Tensor& x, Location where = Location::current());

}  // namespace fermata

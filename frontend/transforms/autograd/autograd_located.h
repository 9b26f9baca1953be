// What vjps are written in: tensors and host numbers whose operations are recorded under the line of the call that is
// being differentiated, so that profiles and explanations of a backward pass name the user's lines.
//
// The functions are the rows of ir/ops.def; a vjp reads as C++ over Tensor.
#pragma once

#include <array>
#include <span>
#include <type_traits>
#include <utility>

#include "ir/op.h"
#include "runtime/operand.h"
#include "runtime/tensor.h"

namespace fermata::vjp {

/// The line that everything is recorded under, for a scope.
extern constinit thread_local Location current_line;
class LineGuard {
 public:
  explicit LineGuard(Location line) : saved_(std::exchange(current_line, line)) {}
  ~LineGuard() { current_line = saved_; }
  LineGuard(const LineGuard&) = delete;
  LineGuard& operator=(const LineGuard&) = delete;

 private:
  Location saved_;
};

class Located {
 public:
  Located() = default;
  Located(Tensor tensor) : tensor_(std::move(tensor)) {}
  Located(const Scalar& scalar) : scalar_(scalar) {}
  template <class T>
  requires std::is_arithmetic_v<T> Located(T value) : scalar_(value) {}

  bool is_scalar() const { return !tensor_.defined(); }
  const Tensor& tensor() const { return tensor_; }
  const Scalar& scalar() const { return scalar_; }
  Operand operand() const { return is_scalar() ? Operand(scalar_, current_line) : Operand(tensor_, current_line); }
  Shape shape() const { return tensor_.shape(); }
  DType dtype() const { return tensor_.dtype(); }

 private:
  Tensor tensor_;  // undefined for a host number
  Scalar scalar_;
};

Located call(Op op, const Located& x);
Located call(Op op, const Located& a, const Located& b);
Located call(Op op, const Located& a, const Located& b, const Located& c);
/// Ops that are not pointwise; arguments as in ir/graph.h. `wanted` where the result type is an argument.
Located call(Op op, std::span<const Tensor> tensors, std::span<const std::int64_t> attributes,
             const TensorType& wanted = {});

#define FERMATA_UNARY(name, rule, formula, vjp, doc) \
  inline Located name(const Located& x) { return call(Op::name, x); }
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  inline Located name(const Located& a, const Located& b) { return call(Op::name, a, b); }
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) \
  inline Located name(const Located& a, const Located& b, const Located& c) { return call(Op::name, a, b, c); }
#include "ir/ops.def"

inline Located operator-(const Located& x) { return negative(x); }
inline Located operator+(const Located& a, const Located& b) { return add(a, b); }
inline Located operator-(const Located& a, const Located& b) { return subtract(a, b); }
inline Located operator*(const Located& a, const Located& b) { return multiply(a, b); }
inline Located operator/(const Located& a, const Located& b) { return divide(a, b); }
inline Located operator==(const Located& a, const Located& b) { return equal(a, b); }
inline Located operator>=(const Located& a, const Located& b) { return greater_equal(a, b); }
inline Located operator<=(const Located& a, const Located& b) { return less_equal(a, b); }
inline Located operator>(const Located& a, const Located& b) { return greater(a, b); }
inline Located operator<(const Located& a, const Located& b) { return less(a, b); }

// The other families, as far as vjps need them. Masks have a bit per axis.
Located full(double value, const TensorType& type, const Located& like);
/// Of a complex tensor the real part, where a real dtype is asked for.
Located cast(const Located& x, DType dtype);
Located reduce(Op op, const Located& x, std::uint16_t axes, bool keepdims);
Located reshape(const Located& x, const Shape& sizes);
Located expand_dims(const Located& x, std::uint16_t axes);
Located squeeze(const Located& x, std::uint16_t axes);
Located permute(const Located& x, std::span<const std::int64_t> axes);
Located transpose(const Located& x);  // the last two axes
Located slice(const Located& x, const Shape& starts, const Shape& steps, const Shape& counts);
Located broadcast_to(const Located& x, const Shape& sizes);
Located concat(std::span<const Located> parts, std::int64_t axis);
Located take(const Located& x, const Located& index, std::int64_t axis);
Located index_add(const Located& x, const Located& index, const Located& source, std::int64_t axis);
Located update(const Located& x, const Located& values, std::int64_t offset, const Shape& strides);
Located matmul(const Located& a, const Located& b);
Located iota(const Shape& sizes, std::int64_t axis, const Located& like);

/// Sums over the axes along which `sizes` was stretched to x's shape, leading ones included.
Located sum_to(const Located& x, const Shape& sizes);
/// The elements of x that update(x, values; offset, strides) would replace.
Located read_strided(const Located& x, std::int64_t offset, const Shape& strides, const Shape& sizes);

}  // namespace fermata::vjp

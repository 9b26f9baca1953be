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

class VjpTensor {
 public:
  VjpTensor() = default;
  VjpTensor(Tensor tensor) : tensor_(std::move(tensor)) {}
  VjpTensor(const Scalar& scalar) : scalar_(scalar) {}
  template <class T>
  requires std::is_arithmetic_v<T> VjpTensor(T value) : scalar_(value) {}

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

VjpTensor call(Op op, const VjpTensor& x);
VjpTensor call(Op op, const VjpTensor& a, const VjpTensor& b);
VjpTensor call(Op op, const VjpTensor& a, const VjpTensor& b, const VjpTensor& c);
/// Ops that are not pointwise; arguments as in ir/graph.h. `wanted` where the result type is an argument.
VjpTensor call(Op op, std::span<const Tensor> tensors, std::span<const std::int64_t> attributes,
               const TensorType& wanted = {});

#define FERMATA_UNARY(name, rule, formula, vjp, doc) \
  inline VjpTensor name(const VjpTensor& x) { return call(Op::name, x); }
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  inline VjpTensor name(const VjpTensor& a, const VjpTensor& b) { return call(Op::name, a, b); }
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) \
  inline VjpTensor name(const VjpTensor& a, const VjpTensor& b, const VjpTensor& c) { return call(Op::name, a, b, c); }
#include "ir/ops.def"

inline VjpTensor operator-(const VjpTensor& x) { return negative(x); }
inline VjpTensor operator+(const VjpTensor& a, const VjpTensor& b) { return add(a, b); }
inline VjpTensor operator-(const VjpTensor& a, const VjpTensor& b) { return subtract(a, b); }
inline VjpTensor operator*(const VjpTensor& a, const VjpTensor& b) { return multiply(a, b); }
inline VjpTensor operator/(const VjpTensor& a, const VjpTensor& b) { return divide(a, b); }
inline VjpTensor operator==(const VjpTensor& a, const VjpTensor& b) { return equal(a, b); }
inline VjpTensor operator>=(const VjpTensor& a, const VjpTensor& b) { return greater_equal(a, b); }
inline VjpTensor operator<=(const VjpTensor& a, const VjpTensor& b) { return less_equal(a, b); }
inline VjpTensor operator>(const VjpTensor& a, const VjpTensor& b) { return greater(a, b); }
inline VjpTensor operator<(const VjpTensor& a, const VjpTensor& b) { return less(a, b); }

// The other families, as far as vjps need them. Masks have a bit per axis.
VjpTensor full(double value, const TensorType& type, const VjpTensor& like);
/// Of a complex tensor the real part, where a real dtype is asked for.
VjpTensor cast(const VjpTensor& x, DType dtype);
VjpTensor reduce(Op op, const VjpTensor& x, std::uint16_t axes, bool keepdims);
VjpTensor reshape(const VjpTensor& x, const Shape& sizes);
VjpTensor expand_dims(const VjpTensor& x, std::uint16_t axes);
VjpTensor squeeze(const VjpTensor& x, std::uint16_t axes);
VjpTensor permute(const VjpTensor& x, std::span<const std::int64_t> axes);
VjpTensor transpose(const VjpTensor& x);  // the last two axes
VjpTensor slice(const VjpTensor& x, const Shape& starts, const Shape& steps, const Shape& counts);
VjpTensor broadcast_to(const VjpTensor& x, const Shape& sizes);
VjpTensor concat(std::span<const VjpTensor> parts, std::int64_t axis);
VjpTensor take(const VjpTensor& x, const VjpTensor& index, std::int64_t axis);
VjpTensor index_add(const VjpTensor& x, const VjpTensor& index, const VjpTensor& source, std::int64_t axis);
VjpTensor update(const VjpTensor& x, const VjpTensor& values, std::int64_t offset, const Shape& strides);
VjpTensor matmul(const VjpTensor& a, const VjpTensor& b);
VjpTensor iota(const Shape& sizes, std::int64_t axis, const VjpTensor& like);

/// Sums over the axes along which `sizes` was stretched to x's shape, leading ones included.
VjpTensor sum_to(const VjpTensor& x, const Shape& sizes);
/// The elements of x that update(x, values; offset, strides) would replace.
VjpTensor read_strided(const VjpTensor& x, std::int64_t offset, const Shape& strides, const Shape& sizes);

}  // namespace fermata::vjp

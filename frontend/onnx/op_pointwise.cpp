// Operators on elements: arithmetic, comparisons, activations, casts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fermata/activations.h"
#include "fermata/composites.h"
#include "fermata/creation.h"
#include "fermata/low_precision.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

unsigned rank_of(const NodeCall& c, std::size_t k) { return c.value(k).tensor().rank(); }

template <Op op> void unary(NodeCall& c) { c.give(detail::pointwise(op, Operand(c.in(0), c.where))); }

/// One of two operands may be a number, the other one is a tensor.
Tensor apply(Op op, const NodeCall& c, std::size_t lhs = 0, std::size_t rhs = 1) {
  const Tensor x = c.in(lhs), y = c.in(rhs);
  if (c.value(rhs).known()) return detail::pointwise(op, Operand(x, c.where), c.operand(rhs, x.rank()));
  return detail::pointwise(op, c.operand(lhs, y.rank()), Operand(y, c.where));
}
template <Op op> void binary(NodeCall& c) { c.give(apply(op, c)); }

Tensor at(const Tensor& x, DType dtype, const NodeCall& c) { return astype(x, dtype, c.where); }
Tensor multiply_by(const Tensor& x, double by, const NodeCall& c) {
  return detail::pointwise(Op::multiply, Operand(x, c.where), Operand(by, c.where));
}

void divide(NodeCall& c) {
  const Tensor x = c.in(0), y = c.in(1);
  if (!is_integer(x.dtype())) return c.give(apply(Op::divide, c));
  // Towards zero.
  const Tensor rest = detail::pointwise(Op::fmod, Operand(x, c.where), Operand(y, c.where));
  c.give(floor_divide(Operand(x - rest, c.where), Operand(y, c.where)));
}
void mod(NodeCall& c) { c.give(apply(c.attr("fmod", std::int64_t{0}) != 0 ? Op::fmod : Op::remainder, c)); }
void power(NodeCall& c) {
  const DType dtype = c.in(0).dtype();
  const Tensor exponent = c.in(1);
  if (is_integer(dtype) && is_floating(exponent.dtype()))
    return c.give(
        at(pow(Operand(at(c.in(0), DType::f64, c), c.where), Operand(at(exponent, DType::f64, c), c.where)), dtype, c));
  c.give(at(apply(Op::pow, c), dtype, c));
}
void shift(NodeCall& c) {
  c.give(apply(c.attr("direction", "LEFT") == "RIGHT" ? Op::bitwise_right_shift : Op::bitwise_left_shift, c));
}

template <Op op> void variadic(NodeCall& c) {
  Tensor all = c.in(0);
  for (std::size_t k = 1; k < c.input_count(); ++k)
    all = detail::pointwise(op, Operand(all, c.where), c.operand(k, all.rank()));
  c.give(all);
}
void average(NodeCall& c) {
  Tensor all = c.in(0);
  for (std::size_t k = 1; k < c.input_count(); ++k) all = add(Operand(all, c.where), Operand(c.in(k), c.where));
  c.give(multiply_by(all, 1.0 / static_cast<double>(c.input_count()), c));
}

void choose(NodeCall& c) {
  const Tensor x = c.in(1), y = c.in(2);
  const unsigned condition = rank_of(c, 0);
  const bool x_is_number = !c.value(2).known();
  c.give(detail::pointwise(Op::where, Operand(c.in(0), c.where),
                           x_is_number ? c.operand(1, std::max(condition, y.rank())) : Operand(x, c.where),
                           x_is_number ? Operand(y, c.where) : c.operand(2, std::max(condition, x.rank()))));
}

void clip_values(NodeCall& c) {
  Tensor x = c.in(0);
  const Attribute *low = c.attribute("min", AttributeType::number), *high = c.attribute("max", AttributeType::number);
  const auto limit = [&](Op op, const Attribute* a, std::size_t k) {
    if (a != nullptr)
      x = detail::pointwise(op, Operand(x, c.where), Operand(a->number, c.where));
    else if (c.has(k))
      x = detail::pointwise(op, Operand(x, c.where), c.operand(k, x.rank()));
  };
  limit(Op::maximum, low, 1), limit(Op::minimum, high, 2);
  c.give(x);
}

/// The scale of a block: the power of two of a magnitude, or the next one, as ONNX rounds.
Tensor scale_of_magnitude(NodeCall& c, bool saturates) {
  const std::string rounding = c.attr("round_mode", "up");
  if (rounding != "up" && rounding != "down" && rounding != "nearest")
    c.fail(fmt::format("round_mode '{}' is invalid", rounding));
  const Tensor size = abs(Operand(at(c.in(0), DType::f32, c), c.where));
  constexpr double kLeast = 0x1p-127, kMost = 0x1p127;
  if (rounding == "nearest") {
    const Tensor raised = maximum(size, kLeast);
    return at(saturates ? where(isinf(size), size, minimum(raised, kMost)) : raised, DType::f8e8m0fnu, c);
  }
  const Tensor exponent = maximum(frexp_exponent(size) - 1, -127);
  Tensor power = where(size == 0, kLeast, ldexp(1.0f, exponent));
  // Up: what f32 has only as subnormal numbers goes to the second scale, as in ONNX's reference.
  if (rounding == "up") power = where((power < size) | ((size > 0) & (size < 0x1p-126)), power * 2, power);
  if (saturates) power = minimum(power, kMost);
  return at(where(isfinite(size), power, NAN), DType::f8e8m0fnu, c);
}

/// Floats out of the range of an integer become the nearest one: ONNX leaves that open. Of 4 and 2 bits it takes the
/// lowest bits of a wider one.
Tensor converted(NodeCall& c, DType dtype) {
  if (is_small(dtype) && !is_small_float(dtype)) return at(at(c.in(0), DType::i32, c), dtype, c);
  const bool saturates = c.attr("saturate", std::int64_t{1}) != 0;
  if (dtype == DType::f8e8m0fnu) return scale_of_magnitude(c, saturates);
  return saturates && is_small_float(dtype) ? saturating_cast(c.in(0), dtype, c.where) : at(c.in(0), dtype, c);
}
void cast_to(NodeCall& c) { c.give(converted(c, dtype_of_code(c.attr("to", std::int64_t{1}), c.where))); }
void cast_like(NodeCall& c) { c.give(converted(c, c.in(1).dtype())); }
void identity(NodeCall& c) { c.give(c.value(0)); }

void is_infinite(NodeCall& c) {
  const Tensor x = c.in(0);
  const bool below = c.attr("detect_negative", std::int64_t{1}) != 0;
  const bool above = c.attr("detect_positive", std::int64_t{1}) != 0;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (below && above) return c.give(isinf(Operand(x, c.where)));
  if (!below && !above) return c.give(not_equal(Operand(x, c.where), Operand(x, c.where)) & false);
  c.give(equal(Operand(x, c.where), Operand(above ? kInfinity : -kInfinity, c.where)));
}

void elu_op(NodeCall& c) { c.give(elu(c.in(0), c.attr("alpha", 1.0), c.where)); }
void celu_op(NodeCall& c) { c.give(celu(c.in(0), c.attr("alpha", 1.0), c.where)); }
void leaky_relu_op(NodeCall& c) { c.give(leaky_relu(c.in(0), c.attr("alpha", 0.01), c.where)); }
void prelu_op(NodeCall& c) {
  const Tensor x = c.in(0), slope = c.in(1);
  c.give(where(Operand(x < 0, c.where), Operand(multiply(Operand(x, c.where), Operand(slope, c.where)), c.where),
               Operand(x, c.where)));
}
void selu_op(NodeCall& c) {
  const double alpha = c.attr("alpha", 1.67326319217681884765625), gamma = c.attr("gamma", 1.05070102214813232421875);
  const Tensor x = c.in(0);
  c.give(multiply_by(where(Operand(x > 0, c.where), x, expm1(x) * alpha), gamma, c));
}
void hard_sigmoid_op(NodeCall& c) {
  c.give(clip(Operand(c.in(0) * c.attr("alpha", 0.2) + c.attr("beta", 0.5), c.where), 0, 1));
}
void gelu_op(NodeCall& c) { c.give(gelu(c.in(0), c.attr("approximate", "none"), c.where)); }
void thresholded_relu_op(NodeCall& c) {
  const double alpha = c.attr("alpha", 1.0);
  c.give(threshold(c.in(0), alpha, 0, c.where));
}
void shrink_op(NodeCall& c) {
  const double lambda = c.attr("lambd", 0.5), bias = c.attr("bias", 0.0);
  const Tensor x = c.in(0);
  const DType dtype = x.dtype();
  c.give(at(where(Operand(x < -lambda, c.where), x + bias, where(x > lambda, x - bias, 0)), dtype, c));
}
void swish_op(NodeCall& c) {
  const Tensor x = c.in(0);
  c.give(multiply(Operand(x, c.where), Operand(sigmoid(x * c.attr("alpha", 1.0)), c.where)));
}
void swiglu_op(NodeCall& c) {
  const Tensor gate = c.in(0);
  c.give(gate * sigmoid(gate * c.attr("alpha", 1.0)) * c.in(1));
}
void softmax_like(NodeCall& c, Tensor (*f)(const Tensor&, std::int64_t, Location)) {
  const Tensor x = c.in(0);
  const bool is_flat = c.opset() < 13;  // all axes from `axis` on are one
  const std::int64_t axis =
      axis_of(c, c.attr("axis", is_flat ? std::int64_t{1} : std::int64_t{-1}), std::max(x.rank(), 1u));
  if (!is_flat || axis + 1 == static_cast<std::int64_t>(x.rank())) return c.give(f(x, axis, c.where));
  std::vector<std::int64_t> sizes = sizes_before(x, axis);
  sizes.push_back(-1);
  c.give(reshape(f(reshape(x, sizes, c.where), -1, c.where), x.shape(), c.where));
}
void softmax_op(NodeCall& c) { softmax_like(c, &softmax); }
void log_softmax_op(NodeCall& c) { softmax_like(c, &log_softmax); }
void hardmax_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t axis = axis_of(c, c.attr("axis", c.opset() < 13 ? std::int64_t{1} : std::int64_t{-1}), x.rank());
  Tensor flat = x;
  std::int64_t along = axis;
  if (c.opset() < 13 && axis + 1 != static_cast<std::int64_t>(x.rank())) {
    std::vector<std::int64_t> sizes = sizes_before(x, axis);
    sizes.push_back(-1);
    flat = reshape(x, sizes, c.where), along = -1;
  }
  const Tensor best = argmax(flat, along, true, c.where);
  Shape ones;
  for (unsigned i = 0; i < flat.rank(); ++i) ones.push_back(1);
  const std::int64_t front = along < 0 ? along + static_cast<std::int64_t>(flat.rank()) : along;
  ones[static_cast<std::size_t>(front)] = flat.size(front);
  const Tensor places = reshape(arange(flat.size(front)), ones, c.where);
  c.give(reshape(at(equal(Operand(places, c.where), Operand(best, c.where)), x.dtype(), c), x.shape(), c.where));
}

constexpr std::array kRows{
    OperatorRow{"Abs", &unary<Op::abs>},
    OperatorRow{"Acos", &unary<Op::acos>},
    OperatorRow{"Acosh", &unary<Op::acosh>},
    OperatorRow{"Add", &binary<Op::add>},
    OperatorRow{"And", &binary<Op::logical_and>},
    OperatorRow{"Asin", &unary<Op::asin>},
    OperatorRow{"Asinh", &unary<Op::asinh>},
    OperatorRow{"Atan", &unary<Op::atan>},
    OperatorRow{"Atanh", &unary<Op::atanh>},
    OperatorRow{"BitShift", &shift},
    OperatorRow{"BitwiseAnd", &binary<Op::bitwise_and>},
    OperatorRow{"BitwiseNot", &unary<Op::bitwise_invert>},
    OperatorRow{"BitwiseOr", &binary<Op::bitwise_or>},
    OperatorRow{"BitwiseXor", &binary<Op::bitwise_xor>},
    OperatorRow{"Cast", &cast_to},
    OperatorRow{"CastLike", &cast_like},
    OperatorRow{"Ceil", &unary<Op::ceil>},
    OperatorRow{"Celu", &celu_op},
    OperatorRow{"Clip", &clip_values, {}, 0b110},
    OperatorRow{"Cos", &unary<Op::cos>},
    OperatorRow{"Cosh", &unary<Op::cosh>},
    OperatorRow{"Div", &divide},
    OperatorRow{"Elu", &elu_op},
    OperatorRow{"Equal", &binary<Op::equal>},
    OperatorRow{"Erf", &unary<Op::erf>},
    OperatorRow{"Exp", &unary<Op::exp>},
    OperatorRow{"Floor", &unary<Op::floor>},
    OperatorRow{"Gelu", &gelu_op},
    OperatorRow{"Greater", &binary<Op::greater>},
    OperatorRow{"GreaterOrEqual", &binary<Op::greater_equal>},
    OperatorRow{"HardSigmoid", &hard_sigmoid_op},
    OperatorRow{"HardSwish", &unary<Op::hardswish>},
    OperatorRow{"Hardmax", &hardmax_op},
    OperatorRow{"Identity", &identity},
    OperatorRow{"IsInf", &is_infinite},
    OperatorRow{"IsNaN", &unary<Op::isnan>},
    OperatorRow{"LeakyRelu", &leaky_relu_op},
    OperatorRow{"Less", &binary<Op::less>},
    OperatorRow{"LessOrEqual", &binary<Op::less_equal>},
    OperatorRow{"Log", &unary<Op::log>},
    OperatorRow{"LogSoftmax", &log_softmax_op},
    OperatorRow{"Max", &variadic<Op::maximum>},
    OperatorRow{"Mean", &average},
    OperatorRow{"Min", &variadic<Op::minimum>},
    OperatorRow{"Mish", &unary<Op::mish>},
    OperatorRow{"Mod", &mod},
    OperatorRow{"Mul", &binary<Op::multiply>},
    OperatorRow{"Neg", &unary<Op::negative>},
    OperatorRow{"Not", &unary<Op::logical_not>},
    OperatorRow{"Or", &binary<Op::logical_or>},
    OperatorRow{"PRelu", &prelu_op},
    OperatorRow{"Pow", &power},
    OperatorRow{"Reciprocal", &unary<Op::reciprocal>},
    OperatorRow{"Relu", &unary<Op::relu>},
    OperatorRow{"Round", &unary<Op::round>},
    OperatorRow{"Selu", &selu_op},
    OperatorRow{"Shrink", &shrink_op},
    OperatorRow{"Sigmoid", &unary<Op::sigmoid>},
    OperatorRow{"Sign", &unary<Op::sign>},
    OperatorRow{"Sin", &unary<Op::sin>},
    OperatorRow{"Sinh", &unary<Op::sinh>},
    OperatorRow{"Softmax", &softmax_op},
    OperatorRow{"Softplus", &unary<Op::softplus>},
    OperatorRow{"Softsign", &unary<Op::softsign>},
    OperatorRow{"Sqrt", &unary<Op::sqrt>},
    OperatorRow{"Sub", &binary<Op::subtract>},
    OperatorRow{"Sum", &variadic<Op::add>},
    OperatorRow{"SwiGLU", &swiglu_op},
    OperatorRow{"Swish", &swish_op},
    OperatorRow{"Tan", &unary<Op::tan>},
    OperatorRow{"Tanh", &unary<Op::tanh>},
    OperatorRow{"ThresholdedRelu", &thresholded_relu_op},
    OperatorRow{"Where", &choose},
    OperatorRow{"Xor", &binary<Op::logical_xor>},
};

}  // namespace

Rows pointwise_rows() { return kRows; }

}  // namespace fermata::onnx

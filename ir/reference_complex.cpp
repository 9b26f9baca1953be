// Reference evaluation of pointwise ops, reductions, casts and products of complex numbers, and of Fourier transforms
// by their definition.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "ir/error.h"
#include "ir/ops/linalg.h"
#include "ir/ops/moves.h"
#include "ir/ops/reduce.h"
#include "ir/reference_element.h"
#include "ir/scalar_interpreter.h"

namespace fermata {
namespace {

using Number = std::complex<double>;
using Wide = std::complex<long double>;

Wide wide(Number z) { return {z.real(), z.imag()}; }
Number narrow(Wide z) { return {static_cast<double>(z.real()), static_cast<double>(z.imag())}; }

Number expm1(Number z) {
  if (std::abs(z) > 1) return std::exp(z) - 1.0;
  const double s = std::sin(z.imag() / 2), e = std::exp(z.real());
  return {std::expm1(z.real()) * std::cos(z.imag()) - 2 * s * s, e * std::sin(z.imag())};
}

Number product(Number a, Number b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

Number pow(Number a, Number b) {
  if (b == 0.0) return 1;
  if (a == 0.0) return b.real() > 0 ? Number(0) : Number(HUGE_VAL, NAN);
  return narrow(std::pow(wide(a), wide(b)));
}

Number unary(const GraphNode& node, Number z) {
  switch (node.op) {
    case Op::positive: return z;
    case Op::negative: return -z;
    case Op::conj: return std::conj(z);
    case Op::real: return z.real();
    case Op::imag: return z.imag();
    case Op::abs: return std::abs(z);
    case Op::angle: return std::arg(z);
    case Op::sign: return z == 0.0 ? z : z / std::abs(z);
    case Op::square: return product(z, z);
    case Op::sqrt: return std::sqrt(z);
    case Op::rsqrt: return 1.0 / std::sqrt(z);
    case Op::reciprocal: return 1.0 / z;
    case Op::exp: return std::exp(z);
    case Op::exp2: return std::exp(z * std::numbers::ln2);
    case Op::expm1: return expm1(z);
    case Op::log: return std::log(z);
    case Op::log2: return std::log(z) / std::numbers::ln2;
    case Op::log10: return std::log10(z);
    case Op::log1p: return narrow(std::log(Wide(1) + wide(z)));
    case Op::sin: return std::sin(z);
    case Op::cos: return std::cos(z);
    case Op::tan: return std::tan(z);
    case Op::asin: return std::asin(z);
    case Op::acos: return std::acos(z);
    case Op::atan: return std::atan(z);
    case Op::sinh: return std::sinh(z);
    case Op::cosh: return std::cosh(z);
    case Op::asinh: return std::asinh(z);
    case Op::acosh: return std::acosh(z);
    case Op::atanh: return std::atanh(z);
    case Op::tanh: return std::tanh(z);
    case Op::sigmoid: return 1.0 / (1.0 + std::exp(-z));
    case Op::round: return {std::nearbyint(z.real()), std::nearbyint(z.imag())};
    case Op::logical_not: return z == 0.0 ? 1 : 0;
    case Op::isnan: return std::isnan(z.real()) || std::isnan(z.imag()) ? 1 : 0;
    case Op::isinf: return std::isinf(z.real()) || std::isinf(z.imag()) ? 1 : 0;
    case Op::isfinite: return std::isfinite(z.real()) && std::isfinite(z.imag()) ? 1 : 0;
    default: throw_internal(fmt::format("reference: no complex {}", name(node.op)), node.where);
  }
}

Number binary(const GraphNode& node, Number a, Number b) {
  switch (node.op) {
    case Op::add: return a + b;
    case Op::subtract: return a - b;
    case Op::multiply: return product(a, b);
    case Op::divide: return a / b;
    case Op::pow: return pow(a, b);
    case Op::equal: return a == b ? 1 : 0;
    case Op::not_equal: return a != b ? 1 : 0;
    case Op::logical_and: return a != 0.0 && b != 0.0 ? 1 : 0;
    case Op::logical_or: return a != 0.0 || b != 0.0 ? 1 : 0;
    case Op::logical_xor: return (a != 0.0) != (b != 0.0) ? 1 : 0;
    default: throw_internal(fmt::format("reference: no complex {}", name(node.op)), node.where);
  }
}

/// Element i of any tensor.
Number element(const ReferenceTensor& x, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  if (is_complex(x.dtype)) return x.complexes[at];
  if (keeps_floats(x.dtype)) return x.floats[at];
  return x.dtype == DType::u64 ? static_cast<double>(static_cast<std::uint64_t>(x.integers[at]))
                               : static_cast<double>(x.integers[at]);
}
void append(ReferenceTensor& result, Number z) {
  if (is_complex(result.dtype))
    result.complexes.push_back(z);
  else if (keeps_floats(result.dtype))
    result.floats.push_back(z.real());
  else
    result.integers.push_back(z != 0.0 ? 1 : 0);
}

}  // namespace

ReferenceTensor complex_pointwise(const Graph& graph, const GraphNode& node,
                                  const std::vector<ReferenceTensor>& values) {
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  Odometer position(node.shape);
  const auto operand = [&](std::size_t k) -> Number {
    const GraphOperand& o = node.operands[k];
    if (o.is_scalar()) {
      const std::uint64_t bits = node.scalars[o.scalar];
      const DType given = scalar_dtype(operand_dtype(graph, node));
      return std::bit_cast<double>(convert_slot(given, DType::f64, bits));
    }
    const ReferenceTensor& x = values[o.value];
    return element(x, position.offset(stretched_strides(x.shape, node.shape)));
  };
  for (std::int64_t i = 0; i < position.count(); ++i, position.next()) {
    if (node.op == Op::where)
      append(result, operand(operand(0) != 0.0 ? 1 : 2));
    else
      append(result, node.operands.size() == 1 ? unary(node, operand(0)) : binary(node, operand(0), operand(1)));
  }
  return result;
}

ReferenceTensor complex_reduce(const GraphNode& node, const ReferenceTensor& x) {
  const bool adds = node.op == Op::sum || node.op == Op::any;
  std::vector<Wide> totals(static_cast<std::size_t>(element_count(node.shape)), adds ? Wide(0) : Wide(1));
  Shape kept, to;
  for (unsigned axis = 0; axis < x.shape.rank(); ++axis)
    kept.push_back(attributes_of<ops::Reduction>(node).is_reduced(axis) ? 1 : x.shape[axis]);
  to = stretched_strides(kept, x.shape);
  Odometer position(x.shape);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next()) {
    const Wide z = wide(x.complexes[static_cast<std::size_t>(i)]);
    Wide& total = totals[static_cast<std::size_t>(position.offset(to))];
    if (node.op == Op::sum)
      total += z;
    else if (node.op == Op::prod)
      total *= z;
    else if (node.op == Op::any)
      total = total != Wide(0) || z != Wide(0) ? 1 : 0;
    else
      total = total != Wide(0) && z != Wide(0) ? 1 : 0;
  }
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  for (const Wide total : totals) append(result, narrow(total));
  return result;
}

ReferenceTensor complex_cast(const GraphNode& node, const ReferenceTensor& x) {
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  for (std::int64_t i = 0; i < element_count(x.shape); ++i) append(result, element(x, i));
  return result;
}

ReferenceTensor ops::ComplexOfParts::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const ReferenceTensor &re = *operands[0], &im = *operands[1];
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  for (std::size_t i = 0; i < re.floats.size(); ++i) result.complexes.emplace_back(re.floats[i], im.floats[i]);
  return result;
}

/// Along an axis with `n` numbers on the longer side.
static ReferenceTensor transform(const GraphNode& node, const ReferenceTensor& x, std::int64_t along, std::int64_t n,
                                 bool inverse) {
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  const auto axis = static_cast<std::size_t>(along);
  const std::int64_t given = x.shape[axis];
  const Shape strides = dense_strides(x.shape);
  Odometer position(node.shape);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next()) {
    const std::int64_t k = position[axis], line = position.offset(strides) - k * strides[axis];
    Wide total = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const long double turn = static_cast<long double>(j * k % n) / static_cast<long double>(n);
      const Wide factor = std::polar(1.0L, (inverse ? 2 : -2) * std::numbers::pi_v<long double> * turn);
      // What irfft is not given is the conjugate of what it is; the imaginary parts of its ends do not count.
      const std::int64_t source = j < given ? j : n - j;
      const Wide z = wide(element(x, line + source * strides[axis]));
      total += factor * (j < given ? z : std::conj(z));
    }
    append(result, narrow(total));
  }
  return result;
}

ReferenceTensor ops::Fft::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Fft>(node);
  const ReferenceTensor& x = *operands[0];
  return transform(node, x, op.axis.value, x.shape[static_cast<std::size_t>(op.axis.value)], op.inverse.value);
}
ReferenceTensor ops::Rfft::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const std::int64_t axis = attributes_of<Rfft>(node).axis.value;
  return transform(node, *operands[0], axis, operands[0]->shape[static_cast<std::size_t>(axis)], false);
}
ReferenceTensor ops::Irfft::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Irfft>(node);
  return transform(node, *operands[0], op.axis.value, op.count.value, true);
}

ReferenceTensor ops::Dct::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const auto op = attributes_of<Dct>(node);
  const ReferenceTensor& x = *operands[0];
  const auto axis = static_cast<std::size_t>(op.axis.value);
  const std::int64_t n = x.shape[axis], type = op.type.value, ends = type == 1 ? n - 1 : 0;
  // The angle of element j in result k is pi (a j + b)(c k + d) / e.
  const bool odd_j = type == 2 || type == 4, odd_k = type >= 3;
  const std::int64_t e = type == 1 ? n - 1 : type == 4 ? 4 * n : 2 * n;
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  const Shape strides = dense_strides(x.shape);
  Odometer position(node.shape);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next()) {
    const std::int64_t k = position[axis], line = position.offset(strides) - k * strides[axis];
    long double total = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t turns = (odd_j ? 2 * j + 1 : j) * (odd_k ? 2 * k + 1 : k) % (2 * e);
      const long double angle =
          std::numbers::pi_v<long double> * static_cast<long double>(turns) / static_cast<long double>(e);
      const bool counts_once = (type == 1 && (j == 0 || j == ends)) || (type == 3 && j == 0);
      total += (counts_once ? 1 : 2) *
               static_cast<long double>(x.floats[static_cast<std::size_t>(line + j * strides[axis])]) * std::cos(angle);
    }
    result.floats.push_back(static_cast<double>(total));
  }
  return result;
}

}  // namespace fermata

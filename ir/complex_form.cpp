// See complex_form.h. The bits are those of the calls.
#include "ir/complex_form.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace fermata {
namespace {

class ComplexForm {
 public:
  ComplexForm(ScalarProgram& program, DType operand, DType result)
      : program_(program), part_(real_dtype(is_complex(operand) ? operand : result)), result_(result) {}

  std::optional<ComplexValue> of(Op op, std::span<const ComplexValue> x) {
    const ComplexValue a = x[0], b = op != Op::complex && x.size() > 1 ? complex(x[1]) : ComplexValue{};
    switch (op) {
      case Op::positive:
      case Op::copy: return a;
      case Op::negative:
      case Op::round: return ComplexValue{real(op, {a.re}), real(op, {a.im})};
      case Op::conj: return ComplexValue{a.re, real(Op::negative, {a.im})};
      case Op::real: return ComplexValue{a.re};
      case Op::imag: return ComplexValue{a.im};
      case Op::add:
      case Op::subtract: {
        const ComplexValue left = complex(a);
        return ComplexValue{real(op, {left.re, b.re}), real(op, {left.im, b.im})};
      }
      case Op::multiply: return product(complex(a), b);
      case Op::square: return product(a, a);
      case Op::abs: return magnitude(a);
      case Op::equal: return both(op, Op::logical_and, complex(a), b);
      case Op::not_equal: return both(op, Op::logical_or, complex(a), b);
      case Op::isnan:
      case Op::isinf: return ComplexValue{truth(Op::logical_or, real(op, {a.re}), real(op, {a.im}))};
      case Op::isfinite: return ComplexValue{truth(Op::logical_and, real(op, {a.re}), real(op, {a.im}))};
      case Op::where: {
        const ComplexValue c = complex(x[2]);
        return ComplexValue{real(op, {a.re, b.re, c.re}), real(op, {a.re, b.im, c.im})};
      }
      case Op::complex: return ComplexValue{a.re, x[1].re};
      case Op::cast: return cast(a);
      default: return std::nullopt;
    }
  }

 private:
  ValueId real(Op op, std::vector<ValueId> operands) const { return of_dtype(op, part_, std::move(operands)); }
  ValueId of_dtype(Op op, DType dtype, std::vector<ValueId> operands) const {
    const Formula& f = pointwise_formula(op, dtype);
    return program_.inline_program(f.program, operands, f.results)[0];
  }
  ValueId truth(Op op, ValueId a, ValueId b) const { return of_dtype(op, DType::boolean, {a, b}); }
  ValueId convert(ValueId v, DType to) const {
    return program_[v].type == to ? v : program_.add({.prim = Prim::convert, .type = to, .a = v});
  }
  ValueId constant(double value) const {
    return program_.constant(part_,
                             part_ == DType::f32 ? constant_bits(static_cast<float>(value)) : constant_bits(value));
  }
  /// A real operand has an imaginary part of 0.
  ComplexValue complex(ComplexValue x) const {
    return x.im != kNoValue ? x : ComplexValue{convert(x.re, part_), constant(0)};
  }

  /// As in the textbook: products of infinite numbers are what their parts give.
  ComplexValue product(ComplexValue a, ComplexValue b) const {
    return {real(Op::subtract, {real(Op::multiply, {a.re, b.re}), real(Op::multiply, {a.im, b.im})}),
            real(Op::add, {real(Op::multiply, {a.re, b.im}), real(Op::multiply, {a.im, b.re})})};
  }
  ComplexValue both(Op op, Op join, ComplexValue a, ComplexValue b) const {
    return {truth(join, real(op, {a.re, b.re}), real(op, {a.im, b.im}))};
  }
  /// In f64, where squares of f32 neither overflow nor underflow; infinite if a part is.
  std::optional<ComplexValue> magnitude(ComplexValue z) const {
    if (part_ != DType::f32) return std::nullopt;
    const auto square = [&](ValueId v) { return of_dtype(Op::square, DType::f64, {convert(v, DType::f64)}); };
    const ValueId sum = of_dtype(Op::add, DType::f64, {square(z.re), square(z.im)});
    const ValueId size = convert(of_dtype(Op::sqrt, DType::f64, {sum}), DType::f32);
    const ValueId is_infinite = truth(Op::logical_or, real(Op::isinf, {z.re}), real(Op::isinf, {z.im}));
    return ComplexValue{real(Op::where, {is_infinite, constant(std::numeric_limits<double>::infinity()), size})};
  }
  ComplexValue cast(ComplexValue x) const {
    if (result_ == DType::boolean)
      return {
          truth(Op::logical_or, real(Op::not_equal, {x.re, constant(0)}), real(Op::not_equal, {x.im, constant(0)}))};
    const DType to = real_dtype(result_);
    if (x.im != kNoValue) return {convert(x.re, to), convert(x.im, to)};
    const ValueId im = program_.constant(to, 0);
    return {convert(convert(x.re, DType::f64), to), im};  // by way of f64, as the call
  }

  ScalarProgram& program_;
  const DType part_, result_;
};

/// The form by itself, of operands that are loaded.
std::optional<std::size_t> size_of(Op op, DType operand, DType result) {
  ScalarProgram program;
  const std::size_t count = is_pointwise(op) ? static_cast<std::size_t>(info(op).operands) : op == Op::complex ? 2 : 1;
  std::vector<ComplexValue> operands;
  std::uint16_t index = 0;
  const auto load = [&](DType t) {
    const ValueId v = program.add({.prim = Prim::input, .type = t, .index = index++});
    return compute_dtype(t) == t ? v : program.add({.prim = Prim::convert, .type = compute_dtype(t), .a = v});
  };
  for (std::size_t k = 0; k < count; ++k) {
    if (op == Op::where && k == 0)
      operands.push_back({load(DType::boolean), kNoValue});
    else if (is_complex(operand))
      operands.push_back({load(real_dtype(operand)), load(real_dtype(operand))});
    else
      operands.push_back({load(operand), kNoValue});
  }
  const std::size_t before = program.size();
  return append_complex(program, op, operand, result, operands) ? std::optional(program.size() - before) : std::nullopt;
}

}  // namespace

bool is_of_complex(const Graph& graph, const GraphNode& node) {
  return is_complex(node.dtype) || std::ranges::any_of(node.operands, [&](const GraphOperand& o) {
           return !o.is_scalar() && is_complex(graph.nodes[o.value].dtype);
         });
}

bool has_complex_form(Op op, DType operand, DType result) { return size_of(op, operand, result).has_value(); }

DTypeSet complex_form_dtypes(Op op) {
  DTypeSet dtypes;
  for (const DType t : {DType::c64, DType::c128}) {
    const DType operand = op == Op::complex ? real_dtype(t) : t;
    if (has_complex_form(op, operand, t)) dtypes = dtypes | operand;
  }
  return dtypes;
}

std::size_t complex_form_size(Op op, DType operand, DType result) { return size_of(op, operand, result).value_or(1); }

std::optional<ComplexValue> append_complex(ScalarProgram& program, Op op, DType operand, DType result,
                                           std::span<const ComplexValue> operands) {
  return ComplexForm(program, operand, result).of(op, operands);
}

}  // namespace fermata

// Evaluates a graph node by node in double precision: the plain meaning of every op, for tests to compare with.
//
// Floats are held and computed as double whatever their dtype, sums and products in long double, so a result is nearly
// what exact arithmetic gives. Integers and bool follow the primitives exactly. Formulas and monoids come from the op
// table; what this file defines by itself is data movement and matmul (reference_move.cpp has the former).
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include <new>

#include "ir/error.h"
#include "ir/graph.h"
#include "ir/infer.h"
#include "ir/ops/leaves.h"
#include "ir/ops/moves.h"
#include "ir/ops/products.h"
#include "ir/ops/reduce.h"
#include "ir/reference_element.h"
#include "ir/scalar_interpreter.h"

namespace fermata {
namespace {

using Tensors = std::vector<ReferenceTensor>;

/// Floats are computed in f64, the rest as it is.
DType reference_dtype(DType t) { return keeps_floats(t) ? DType::f64 : t; }

/// One operand of a pointwise op: a tensor stretched to the result, or a scalar.
struct Operand {
  ElementReader reader;
  Shape strides{};
  std::uint64_t scalar = 0;
};

Operand pointwise_operand(const Graph& graph, const GraphNode& node, const GraphOperand& operand, const Tensors& values,
                          DType parameter) {
  if (operand.is_scalar()) {
    const DType given = compute_dtype(operand_dtype(graph, node));
    const std::uint64_t bits = convert_slot(given, reference_dtype(given), node.scalars[operand.scalar]);
    return {ElementReader(), Shape(node.shape), convert_slot(reference_dtype(given), parameter, bits)};
  }
  const ReferenceTensor& tensor = values[operand.value];
  return {ElementReader(tensor, parameter), stretched_strides(tensor.shape, node.shape)};
}

ReferenceTensor evaluate_pointwise(const Graph& graph, const GraphNode& node, const Tensors& values) {
  const Formula& formula = pointwise_formula(node.op, reference_dtype(operand_dtype(graph, node)));
  FormulaInterpreter run(formula);
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < node.operands.size(); ++i)
    operands.push_back(pointwise_operand(graph, node, node.operands[i], values, formula.parameters[i]));
  ElementWriter result(node.dtype, node.shape, formula.program[formula.results[0]].type);
  std::vector<std::uint64_t> parameters(operands.size());
  Odometer position(node.shape);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next()) {
    for (std::size_t k = 0; k < operands.size(); ++k)
      parameters[k] =
          operands[k].reader.is_empty() ? operands[k].scalar : operands[k].reader[position.offset(operands[k].strides)];
    result.set(i, run(parameters)[0]);
  }
  return result.take();
}

/// Strides of the operand over the kept axes (in the result's order) and over the reduced ones, with their sizes.
struct ReduceAxes {
  Shape kept, kept_strides, reduced, reduced_strides;
};
ReduceAxes reduce_axes(const GraphNode& node, const Shape& operand) {
  ReduceAxes axes;
  const Shape strides = dense_strides(operand);
  for (unsigned axis = 0; axis < operand.rank(); ++axis) {
    const bool reduced = attributes_of<ops::Reduction>(node).is_reduced(axis);
    (reduced ? axes.reduced : axes.kept).push_back(operand[axis]);
    (reduced ? axes.reduced_strides : axes.kept_strides).push_back(strides[axis]);
  }
  return axes;
}

/// Floating sums and products, wider than any formula.
ReferenceTensor reduce_wide(const GraphNode& node, const ReferenceTensor& x) {
  const ReduceAxes axes = reduce_axes(node, x.shape);
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  Odometer kept(axes.kept);
  for (std::int64_t i = 0; i < kept.count(); ++i, kept.next()) {
    long double total = node.op == Op::sum ? 0.0L : 1.0L;
    Odometer reduced(axes.reduced);
    for (std::int64_t k = 0; k < reduced.count(); ++k, reduced.next()) {
      const auto at = static_cast<std::size_t>(kept.offset(axes.kept_strides) + reduced.offset(axes.reduced_strides));
      if (node.op == Op::sum)
        total += static_cast<long double>(x.floats[at]);
      else
        total *= static_cast<long double>(x.floats[at]);
    }
    result.floats.push_back(static_cast<double>(total));
  }
  return result;
}

ReferenceTensor evaluate_reduce(const Graph& graph, const GraphNode& node, const ReferenceTensor& x) {
  if ((node.op == Op::sum || node.op == Op::prod) && keeps_floats(node.dtype)) return reduce_wide(node, x);
  const DType compute = reference_dtype(operand_dtype(graph, node));
  const ReduceFormula& monoid = reduce_formula(node.op, compute);
  FormulaInterpreter lift(monoid.lift), combine(monoid.combine), finish(monoid.finish);
  const ReduceAxes axes = reduce_axes(node, x.shape);
  const ElementReader read(x, compute);
  ElementWriter result(node.dtype, node.shape, monoid.finish.program[monoid.finish.results[0]].type);
  Odometer kept(axes.kept);
  for (std::int64_t i = 0; i < kept.count(); ++i, kept.next()) {
    std::vector<std::uint64_t> state = monoid.identity;
    Odometer reduced(axes.reduced);
    for (std::int64_t k = 0; k < reduced.count(); ++k, reduced.next()) {
      const std::uint64_t element[] = {read[kept.offset(axes.kept_strides) + reduced.offset(axes.reduced_strides)],
                                       static_cast<std::uint64_t>(k)};
      const auto lifted = lift(element);
      std::vector<std::uint64_t> both = state;
      both.insert(both.end(), lifted.begin(), lifted.end());
      const auto merged = combine(both);
      state.assign(merged.begin(), merged.end());
    }
    result.set(i, finish(state)[0]);
  }
  return result.take();
}

ReferenceTensor evaluate_random(const GraphNode& node) {
  const Formula& formula = random_formula(node.op, compute_dtype(node.dtype));
  FormulaInterpreter run(formula);
  ElementWriter result(node.dtype, node.shape, compute_dtype(node.dtype));
  const std::int64_t count = element_count(node.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t parameters[] = {static_cast<std::uint64_t>(i), node.scalars[0], node.scalars[1]};
    result.set(i, run(parameters)[0]);
  }
  return result.take();
}

ReferenceTensor evaluate_full(const GraphNode& node) {
  if (is_complex(node.dtype)) {
    const DType given = scalar_dtype(node.dtype);
    const double value = std::bit_cast<double>(convert_slot(given, DType::f64, node.scalars[0]));
    return {node.dtype,
            node.shape,
            {},
            {},
            std::vector<std::complex<double>>(static_cast<std::size_t>(element_count(node.shape)), value)};
  }
  ElementWriter result(node.dtype, node.shape, compute_dtype(node.dtype));
  const std::int64_t count = element_count(node.shape);
  for (std::int64_t i = 0; i < count; ++i) result.set(i, node.scalars[0]);
  return result.take();
}

ReferenceTensor evaluate_iota(const GraphNode& node) {
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  Odometer position(node.shape);
  for (std::int64_t i = 0; i < position.count(); ++i, position.next())
    result.integers.push_back(position[static_cast<std::size_t>(attributes_of<ops::Iota>(node).axis.value)]);
  return result;
}

ReferenceTensor evaluate_cast(const GraphNode& node, const ReferenceTensor& x) {
  if (is_complex(node.dtype) || is_complex(x.dtype)) return complex_cast(node, x);
  const ElementReader read(x, reference_dtype(node.dtype));
  ElementWriter result(node.dtype, node.shape, reference_dtype(node.dtype));
  const std::int64_t count = element_count(node.shape);
  for (std::int64_t i = 0; i < count; ++i) result.set(i, read[i]);
  return result.take();
}

/// The axes of matmul: batch axes of the result, and the strides of each operand over batch, row or column, and k.
ReferenceTensor evaluate_matmul(const GraphNode& node, const ReferenceTensor& lhs, const ReferenceTensor& rhs) {
  const bool row_vector = lhs.shape.rank() == 1, column_vector = rhs.shape.rank() == 1;
  const std::int64_t k_size = lhs.shape.back();
  const std::int64_t m = row_vector ? 1 : lhs.shape[lhs.shape.rank() - 2u], n = column_vector ? 1 : rhs.shape.back();
  const auto batch_of = [](const Shape& s, bool vector) {
    return Shape(std::span(s).first(s.rank() - (vector ? 1u : 2u)));
  };
  const Shape left = batch_of(lhs.shape, row_vector), right = batch_of(rhs.shape, column_vector);
  const Shape batch = broadcast_shapes(left, right).value();
  const Shape left_strides = stretched_strides(left, batch), right_strides = stretched_strides(right, batch);
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  ElementWriter integers(node.dtype, node.shape, DType::u64);
  std::int64_t at = 0;
  Odometer position(batch);
  for (std::int64_t b = 0; b < position.count(); ++b, position.next())
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        long double total = 0;
        std::complex<long double> complex_total = 0;
        std::uint64_t wrapped = 0;
        for (std::int64_t k = 0; k < k_size; ++k) {
          const auto l = static_cast<std::size_t>((position.offset(left_strides) * m + i) * k_size + k);
          const auto r = static_cast<std::size_t>((position.offset(right_strides) * k_size + k) * n + j);
          if (is_complex(node.dtype))
            complex_total += std::complex<long double>(lhs.complexes[l]) * std::complex<long double>(rhs.complexes[r]);
          else if (keeps_floats(node.dtype))
            total += static_cast<long double>(lhs.floats[l]) * static_cast<long double>(rhs.floats[r]);
          else
            wrapped += static_cast<std::uint64_t>(lhs.integers[l]) * static_cast<std::uint64_t>(rhs.integers[r]);
        }
        if (is_complex(node.dtype))
          result.complexes.emplace_back(static_cast<double>(complex_total.real()),
                                        static_cast<double>(complex_total.imag()));
        else if (keeps_floats(node.dtype))
          result.floats.push_back(static_cast<double>(total));
        else
          integers.set(at++, wrapped);
      }
  return is_inexact(node.dtype) ? result : integers.take();
}

ReferenceTensor evaluate_irregular(const GraphNode& node, const ReferenceOperands& operands) {
  if (traits(node.op).reference == nullptr)
    throw_internal(fmt::format("reference: no evaluation of {}", name(node.op)), node.where);
  return traits(node.op).reference(node, operands);
}

ReferenceTensor evaluate_node(const Graph& graph, const GraphNode& node, const Tensors& values) {
  const bool of_complex = std::any_of(node.operands.begin(), node.operands.end(), [&](const GraphOperand& o) {
    return !o.is_scalar() && is_complex(graph.nodes[o.value].dtype);
  });
  if (is_pointwise(node.op))
    return of_complex ? complex_pointwise(graph, node, values) : evaluate_pointwise(graph, node, values);
  if (family(node.op) == Family::reduce) {
    const ReferenceTensor& x = values[node.operands[0].value];
    return of_complex ? complex_reduce(node, x) : evaluate_reduce(graph, node, x);
  }
  if (family(node.op) == Family::random) return evaluate_random(node);
  std::vector<const ReferenceTensor*> operands;
  for (const GraphOperand& operand : node.operands) operands.push_back(&values[operand.value]);
  return evaluate_irregular(node, operands);
}

}  // namespace

ReferenceTensor ops::Full::reference(const GraphNode& node, const ReferenceOperands&) { return evaluate_full(node); }
ReferenceTensor ops::Iota::reference(const GraphNode& node, const ReferenceOperands&) { return evaluate_iota(node); }
ReferenceTensor ops::Cast::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return evaluate_cast(node, *operands[0]);
}
ReferenceTensor ops::Matmul::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return evaluate_matmul(node, *operands[0], *operands[1]);
}
ReferenceTensor ops::MatmulBytes::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return evaluate_matmul(node, *operands[0], *operands[1]);
}
ReferenceTensor ops::MatmulHalves::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return evaluate_matmul(node, *operands[0], *operands[1]);
}

std::vector<ReferenceTensor> evaluate_reference(const Graph& graph, const std::vector<ReferenceTensor>& inputs) try {
  verify(graph);
  Tensors values;
  std::size_t next_input = 0;
  for (const GraphNode& node : graph.nodes) {
    if (node.op != Op::input) {
      values.push_back(evaluate_node(graph, node, values));
      continue;
    }
    if (next_input == inputs.size()) throw_internal("reference: fewer inputs than the graph has");
    const ReferenceTensor& given = inputs[next_input++];
    const auto count = static_cast<std::size_t>(element_count(node.shape));
    if (given.dtype != node.dtype || given.shape != node.shape ||
        (is_complex(node.dtype)     ? given.complexes.size()
         : keeps_floats(node.dtype) ? given.floats.size()
                                    : given.integers.size()) != count)
      throw_internal("reference: an input's type differs from the graph's");
    values.push_back(given);
  }
  std::vector<ReferenceTensor> outputs;
  for (const ValueId output : graph.outputs) outputs.push_back(values[output]);
  return outputs;
} catch (const std::bad_alloc&) {
  throw OutOfMemoryError(
      3001, format_error(3001, "OutOfMemoryError", "the reference cannot allocate the values of the graph", {}, {}));
}

}  // namespace fermata

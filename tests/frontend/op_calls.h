// Calls of any op for tests: operands for what the op table says of one (ir/op_traits.h), and what comes out of it.
#pragma once

#include <fermata/fermata.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/graph.h"
#include "ir/infer.h"
#include "ir/op_traits.h"

namespace fermata::test {

/// Numbers of any dtype that differ from their neighbors.
inline Tensor some_numbers(DType dtype, const Shape& shape, int seed) {
  const std::int64_t count = element_count(shape);
  const Tensor position = reshape(arange(count), shape) + seed;
  if (dtype == DType::boolean) return equal(remainder(position, 3), 0).sync();
  if (is_integer(dtype)) return astype(remainder(position * 7, 11), dtype).sync();
  const Tensor wave = sin(astype(position, DType::f64) * 1.7) * 3;
  if (is_complex(dtype)) return astype(complex(wave, cos(wave)), dtype).sync();
  return astype(wave, dtype).sync();
}

inline Tensor integers(const std::vector<std::int64_t>& values, DType dtype) {
  std::vector<Tensor> parts;
  for (const std::int64_t v : values) parts.push_back(full({1}, v, dtype));
  return concat(parts, 0).sync();
}

/// Row offsets and columns, for a dense operand with three rows or more.
inline Tensor pattern(const OpCall& call) {
  const std::int64_t size = call.shapes[0][0], second = call.shapes[1][0];
  const std::int64_t rows = call.shapes[1].rank() == 1 ? size - 1 - second : second, entries = size - 1 - rows;
  std::vector<std::int64_t> values;
  for (std::int64_t row = 0; row <= rows; ++row) values.push_back(row * entries / rows);
  for (std::int64_t e = 0; e < entries; ++e) values.push_back(e % 3);
  return integers(values, DType::i64);
}

inline Tensor operand_of(const OpCall& call, OperandElements elements, std::size_t k) {
  const Shape& shape = call.shapes[k];
  const std::int64_t count = element_count(shape);
  switch (elements) {
    case OperandElements::positions: {
      std::int64_t below = INT64_MAX;
      for (const std::int64_t size : call.shapes[0]) below = std::min(below, size);
      return astype(remainder(reshape(arange(count), shape) * 2 + 1, below), call.dtypes[k]).sync();
    }
    case OperandElements::pattern: return pattern(call);
    case OperandElements::positive_definite: {
      const Tensor half = some_numbers(DType::f64, shape, 0) * 0.1;
      return astype(eye(shape.back(), {}, DType::f64) * 4 + half + half.mT(), call.dtypes[k]).sync();
    }
    case OperandElements::any: break;
  }
  return some_numbers(call.dtypes[k], shape, static_cast<int>(k));
}

/// The tensors of a call: one and the same for calls with operands of the same types, so that equal calls may become
/// one.
inline std::vector<Tensor> operands_of(Op op, const OpCall& call) {
  std::vector<Tensor> operands;
  const auto named = traits(op).operands;
  for (std::size_t k = 0; k < call.shapes.size(); ++k)
    operands.push_back(
        operand_of(call, named.empty() ? OperandElements::any : named[std::min(k, named.size() - 1)].elements, k));
  return operands;
}

inline bool is_valid(Op op, const OpCall& call) {
  std::vector<TensorType> operands;
  for (std::size_t k = 0; k < call.shapes.size(); ++k) operands.push_back({call.dtypes[k], call.shapes[k]});
  try {
    infer(op, operands, call.attributes, {call.dtype, call.shape}, {});
    return true;
  } catch (const Error&) { return false; }
}

/// Shape, dtype and the bits of all elements.
using Value = std::pair<std::string, std::vector<std::uint64_t>>;
inline Value value_of(const Tensor& x) {
  Value value{to_string(x.dtype(), x.shape()), {}};
  if (is_complex(x.dtype())) {
    for (const std::complex<double> z : x.to_vector<std::complex<double>>())
      value.second.push_back(std::bit_cast<std::uint64_t>(z.real())),
          value.second.push_back(std::bit_cast<std::uint64_t>(z.imag()));
  } else if (is_floating(x.dtype())) {
    for (const double v : x.to_vector<double>())  // which NaN it is says nothing
      value.second.push_back(std::bit_cast<std::uint64_t>(std::isnan(v) ? NAN : v));
  } else {
    for (const std::uint64_t v : x.to_vector<std::uint64_t>()) value.second.push_back(v);
  }
  return value;
}

/// A call that is right, from which the others are made; none for ops that are in no text.
inline std::optional<OpCall> good_call(Op op) {
  OpCall call;
  DType dtype = DType::f32;
  for (const DType t : {DType::u64, DType::boolean, DType::i32, DType::f32})
    if (is_pointwise(op) || family(op) == Family::reduce)
      if (apply_rule(info(op).rule, t)) dtype = t;
  if (is_pointwise(op)) {
    const auto count = static_cast<std::size_t>(info(op).operands);
    call.dtypes.assign(count, dtype), call.shapes.assign(count, Shape{3, 4});
    if (info(op).rule == DTypeRule::choose) call.dtypes[0] = DType::boolean;
  } else if (family(op) == Family::reduce) {
    call.dtypes = {dtype}, call.shapes = {Shape{3, 4}}, call.attributes = {1, 0};
  } else if (family(op) == Family::random) {
    call.shape = Shape{3, 4}, call.scalars = {7, 11};
  } else if (traits(op).example != nullptr) {
    call = traits(op).example();
  } else {
    return std::nullopt;
  }
  return call;
}

inline TensorType result_type(Op op, const OpCall& call) {
  std::vector<TensorType> operands;
  for (std::size_t k = 0; k < call.shapes.size(); ++k) operands.push_back({call.dtypes[k], call.shapes[k]});
  return infer(op, operands, call.attributes, {call.dtype, call.shape}, {});
}

/// The call on inputs, as a program.
inline std::string text_of(Op op, const OpCall& call) {
  Graph graph;
  GraphNode node;
  node.op = op;
  for (std::size_t k = 0; k < call.shapes.size(); ++k) {
    GraphNode input;
    input.dtype = call.dtypes[k], input.shape = call.shapes[k];
    graph.nodes.push_back(input);
    node.operands.push_back({static_cast<ValueId>(k), 0});
  }
  node.attributes = call.attributes, node.scalars = call.scalars;
  node.dtype = call.dtype, node.shape = call.shape;
  try {
    const TensorType type = result_type(op, call);
    node.dtype = type.dtype, node.shape = type.shape;
  } catch (const Error&) {}  // so is the type that it is said to have
  graph.nodes.push_back(node);
  graph.outputs = {static_cast<ValueId>(graph.nodes.size() - 1)};
  return to_string(graph);
}

}  // namespace fermata::test

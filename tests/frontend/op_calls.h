// Calls of any op for tests: operands for what the op table says of one (ir/op_traits.h), and what comes out of it.
#pragma once

#include <fermata/fermata.h>

#include <algorithm>
#include <bit>
#include <complex>
#include <string>
#include <utility>
#include <vector>

#include "frontend/ops/calls.h"
#include "ir/error.h"
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
      return (eye(shape.back(), {}, DType::f64) * 4 + half + half.mT()).sync();
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
    for (const double v : x.to_vector<double>()) value.second.push_back(std::bit_cast<std::uint64_t>(v));
  } else {
    for (const std::uint64_t v : x.to_vector<std::uint64_t>()) value.second.push_back(v);
  }
  return value;
}

}  // namespace fermata::test

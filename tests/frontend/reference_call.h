// One call of the op table as a graph of its own, evaluated by the double-precision reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "fermata/fermata.h"
#include "ir/graph.h"
#include "tests/frontend/gradient_check.h"

namespace fermata::testing {

using Complex = std::complex<double>;

inline std::vector<Complex> elements(const Tensor& x) { return x.to_vector<Complex>(); }

inline ReferenceTensor reference_input(const Tensor& x) {
  ReferenceTensor r{x.dtype(), x.shape(), {}, {}};
  if (is_complex(x))
    r.complexes = elements(x);
  else if (is_floating(x.dtype()))
    r.floats = x.to_vector<double>();
  else if (x.dtype() == DType::u64)
    for (const std::uint64_t v : x.to_vector<std::uint64_t>()) r.integers.push_back(static_cast<std::int64_t>(v));
  else
    r.integers = x.to_vector<std::int64_t>();
  return r;
}

/// What the reference makes of an op for these operands; `type` is that of the result.
inline std::vector<Complex> reference(Op op, const std::vector<Tensor>& operands, const TensorType& type,
                                      std::vector<std::int64_t> attributes = {}) {
  Graph graph;
  GraphNode node;
  node.op = op, node.dtype = type.dtype, node.shape = type.shape, node.attributes = std::move(attributes);
  std::vector<ReferenceTensor> inputs;
  for (const Tensor& x : operands) {
    GraphNode input;
    input.dtype = x.dtype(), input.shape = x.shape();
    node.operands.push_back({static_cast<ValueId>(graph.nodes.size()), 0});
    graph.nodes.push_back(std::move(input));
    inputs.push_back(reference_input(x));
  }
  graph.outputs = {static_cast<ValueId>(graph.nodes.size())};
  graph.nodes.push_back(std::move(node));
  const ReferenceTensor result = evaluate_reference(graph, inputs).at(0);
  std::vector<Complex> values(result.complexes);
  for (const double v : result.floats) values.emplace_back(v);
  for (const std::int64_t v : result.integers)
    values.emplace_back(type.dtype == DType::u64 ? static_cast<double>(static_cast<std::uint64_t>(v))
                                                 : static_cast<double>(v));
  return values;
}

/// Equal to a tolerance relative to the largest of the expected numbers; NaN equal to NaN.
inline void expect_near(const Tensor& found, const std::vector<Complex>& expected, double tolerance) {
  const std::vector<Complex> values = elements(found);
  ASSERT_EQ(values.size(), expected.size());
  double scale = 0;
  for (const Complex z : expected) scale = std::max(scale, std::isfinite(std::abs(z)) ? std::abs(z) : 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == expected[i]) continue;
    const bool same_nan = std::isnan(std::abs(values[i])) && std::isnan(std::abs(expected[i]));
    if (same_nan || (std::isinf(std::abs(values[i])) && std::isinf(std::abs(expected[i])))) continue;
    EXPECT_LE(std::abs(values[i] - expected[i]), tolerance * std::max(scale, 1e-30))
        << "element " << i << ": " << values[i] << ", not " << expected[i];
  }
}
/// The rounding error of a few operations.
inline double rounding(DType dtype) { return byte_size(real_dtype(dtype)) == 8 ? 1e-13 : 3e-6; }

/// Numbers that depend on the seed only, with parts in [-2, 2].
inline Tensor random_complex(const Shape& shape, DType dtype, std::uint64_t seed) {
  return complex(random_f64(shape, 0.2, 2, true, seed), random_f64(shape, 0.2, 2, true, seed + 1000)).astype(dtype);
}
/// The same for real dtypes.
inline Tensor random_number(const Shape& shape, DType dtype, std::uint64_t seed) {
  return is_complex(dtype) ? random_complex(shape, dtype, seed) : random_f64(shape, 0.2, 2, true, seed).astype(dtype);
}

/// A complex function as a real one of parts: finite differences and second derivatives then need no care.
inline Function of_parts(const std::function<Tensor(const std::vector<Tensor>&)>& f) {
  return [f](const Inputs& parts) {
    std::vector<Tensor> zs;
    for (std::size_t i = 0; i < parts.size(); i += 2) zs.push_back(complex(parts[i], parts[i + 1]));
    const Tensor y = f(zs);
    return is_complex(y) ? stack({real(y), imag(y)}) : y;
  };
}
inline Inputs parts_of(const std::vector<Tensor>& zs) {
  Inputs parts;
  for (const Tensor& z : zs) parts.push_back(copy(real(z))), parts.push_back(copy(imag(z)));
  return parts;
}

}  // namespace fermata::testing

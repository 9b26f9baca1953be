// vmap against the loop that it stands for.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "fermata/fermata.h"
#include "tests/frontend/gradient_check.h"

namespace fermata::testing {

/// Where an operand has its batch axis; kShared: nowhere.
inline constexpr int kShared = -100;

/// `element` with a batch in front of axis `axis`: every element of the batch is another tensor.
inline Tensor stacked(const Inputs& elements, int axis) { return stack(elements, axis); }

/// Equal values, NaN equal to NaN, floats to a relative tolerance.
inline void expect_close(const Tensor& found, const Tensor& expected, double tolerance = 0) {
  ASSERT_EQ(to_string(found.dtype(), found.shape()), to_string(expected.dtype(), expected.shape()));
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    EXPECT_LE(std::abs(a[i] - b[i]), tolerance * std::max(1.0, std::abs(b[i])))
        << "element " << i << ": " << a[i] << ", not " << b[i];
  }
}

/// An operand of a checked call: its elements of the batch, of which a shared one has just one.
struct BatchOperand {
  Inputs elements;
  int axis = 0;
};

/// f by vmap against a loop of calls of f.
inline void check_vmap(const std::string& what, const Function& f, const std::vector<BatchOperand>& operands,
                       std::int64_t batch, int out_axis = 0, double tolerance = 0) {
  SCOPED_TRACE(what);
  Inputs expected;
  for (std::int64_t i = 0; i < batch; ++i) {
    Inputs one;
    for (const BatchOperand& o : operands)
      one.push_back(o.axis == kShared ? o.elements[0] : o.elements[static_cast<std::size_t>(i)]);
    expected.push_back(f(one));
  }
  std::tuple<Tensor, Tensor, Tensor> given;
  const auto all = [](const BatchOperand& o) {
    return o.axis == kShared ? o.elements[0] : stacked(o.elements, o.axis);
  };
  const auto axis = [](const BatchOperand& o) { return o.axis == kShared ? BatchAxis(unbatched) : BatchAxis(o.axis); };
  Tensor found;
  if (operands.size() == 1)
    found = vmap([&](const Tensor& a) { return f({a}); }, {axis(operands[0])}, out_axis)(all(operands[0]));
  else if (operands.size() == 2)
    found = vmap(
        [&](const Tensor& a, const Tensor& b) {
          return f({a, b});
        },
        {axis(operands[0]), axis(operands[1])}, out_axis)(all(operands[0]), all(operands[1]));
  else
    found = vmap(
        [&](const Tensor& a, const Tensor& b, const Tensor& c) {
          return f({a, b, c});
        },
        {axis(operands[0]), axis(operands[1]), axis(operands[2])},
        out_axis)(all(operands[0]), all(operands[1]), all(operands[2]));
  expect_close(found, stack(expected, out_axis), tolerance);
}

}  // namespace fermata::testing

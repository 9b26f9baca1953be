// Gradients against central finite differences in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "fermata/autograd.h"
#include "fermata/fermata.h"

namespace fermata::testing {

using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

/// Numbers that depend on the seed only, in [low, high) or, where `both_signs`, also in (-high, -low].
inline std::vector<double> numbers(std::int64_t count, double low, double high, bool both_signs, std::uint64_t seed) {
  std::vector<double> values;
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const double unit = static_cast<double>(state >> 11) * 0x1p-53;
    const double value = low + (high - low) * unit;
    values.push_back(both_signs && (state >> 60 & 1) != 0 ? -value : value);
  }
  return values;
}
inline Tensor random_f64(const Shape& shape, double low, double high, bool both_signs, std::uint64_t seed) {
  return tensor(numbers(element_count(shape), low, high, both_signs, seed), shape);
}

/// The sum of a result's elements with fixed weights, so that every element counts differently.
inline Tensor weighted_sum(const Tensor& y, std::uint64_t seed = 77) {
  return sum(y * random_f64(y.shape(), 0.5, 1.5, true, seed));
}

/// d weighted_sum(f) / dx as a function again, reduced to one number: for second derivatives.
inline Function gradient_sum(const Function& f) {
  return [f](const Inputs& xs) {
    const Inputs gradients = grad([&](const Inputs& at) { return weighted_sum(f(at)); })(xs);
    Tensor total = weighted_sum(gradients[0], 5);
    for (std::size_t i = 1; i < gradients.size(); ++i) total = total + weighted_sum(gradients[i], 5 + i);
    return total;
  };
}

/// Compares gradients of weighted_sum(f) with respect to all inputs (f64) with finite differences.
inline void check_gradients(const std::string& what, const Function& f, const Inputs& xs, double tolerance = 2e-7) {
  SCOPED_TRACE(what);
  Inputs leaves;
  for (const Tensor& x : xs) leaves.push_back(copy(x).requires_grad(true));
  const Tensor y = weighted_sum(f(leaves));
  Inputs gradients;  // of a y without history: none, so zeros
  if (y.requires_grad())
    gradients = fermata::gradients(y, leaves);
  else
    for (const Tensor& x : xs) gradients.push_back(zeros_like(x));
  for (std::size_t k = 0; k < xs.size(); ++k) {
    ASSERT_EQ(gradients[k].shape(), xs[k].shape());
    ASSERT_EQ(gradients[k].dtype(), DType::f64);
    const std::vector<double> found = gradients[k].to_vector<double>(), at = xs[k].to_vector<double>();
    for (std::size_t i = 0; i < at.size(); ++i) {
      constexpr double kStep = 1e-5;
      double values[2];
      for (const int side : {0, 1}) {
        std::vector<double> moved = at;
        moved[i] += side == 0 ? -kStep : kStep;
        Inputs inputs = xs;
        inputs[k] = tensor(moved, xs[k].shape());
        values[side] = weighted_sum(f(inputs)).item<double>();
      }
      const double expected = (values[1] - values[0]) / (2 * kStep);
      EXPECT_NEAR(found[i], expected, tolerance * std::max(1.0, std::abs(expected)))
          << "operand " << k << ", element " << i;
    }
  }
}

/// Compares how f changes along fixed tangents of all inputs (f64) with finite differences.
inline void check_pushforward(const std::string& what, const Function& f, const Inputs& xs, double tolerance = 2e-7) {
  SCOPED_TRACE("pushforward of " + what);
  Inputs tangents;
  for (std::size_t k = 0; k < xs.size(); ++k) tangents.push_back(random_f64(xs[k].shape(), 0.5, 1.5, true, 91 + k));
  const auto [y, tangent] = jvp(f, xs, tangents);
  ASSERT_EQ(to_string(tangent.dtype(), tangent.shape()), to_string(y.dtype(), y.shape()));
  constexpr double kStep = 1e-5;
  Inputs ahead, behind;
  for (std::size_t k = 0; k < xs.size(); ++k) {
    ahead.push_back(xs[k] + tangents[k] * kStep);
    behind.push_back(xs[k] - tangents[k] * kStep);
  }
  const std::vector<double> found = tangent.to_vector<double>(),
                            expected = ((f(ahead) - f(behind)) / (2 * kStep)).to_vector<double>(),
                            value = y.to_vector<double>(), alone = f(xs).to_vector<double>();
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << "element " << i;
    EXPECT_NEAR(value[i], alone[i], 1e-14 * std::max(1.0, std::abs(alone[i]))) << "element " << i;
  }
}

/// Derivatives of first and second order, in reverse and forward mode and both mixed.
inline void check_both_orders(const std::string& what, const Function& f, const Inputs& xs) {
  check_pushforward(what, f, xs);
  check_pushforward("the gradient of " + what, gradient_sum(f), xs, 2e-6);
  const Function tangent_of = [&](const Inputs& at) {
    Inputs tangents;
    for (std::size_t k = 0; k < at.size(); ++k) tangents.push_back(random_f64(at[k].shape(), 0.5, 1.5, true, 91 + k));
    return jvp(f, at, tangents).second;
  };
  check_gradients("the pushforward of " + what, tangent_of, xs, 2e-6);
  check_gradients(what, f, xs);
  check_gradients("second derivative of " + what, gradient_sum(f), xs, 2e-6);
}

/// Runs a test in both modes.
class InBothModes : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
inline std::string mode_name(const ::testing::TestParamInfo<Mode>& mode) {
  return mode.param == Mode::eager ? "eager" : "compiled";
}

}  // namespace fermata::testing

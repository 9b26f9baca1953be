// Programs that become kernels of several stages over rows or columns, with costly values that stages have in common:
// compiled code must give what eager mode gives, for rows of any length and number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fermata/fermata.h"

namespace fermata::testing {
namespace {

using Program = Tensor (*)(const Tensor&);
struct Named {
  const char* name;
  Program program;
};

Tensor entropy(const Tensor& x, int axis) {
  const Tensor p = softmax(gelu(x), axis);
  return sum(p * log(p + 1e-6), axis);
}
Tensor reused_exponentials(const Tensor& x) {
  const Tensor g = gelu(x), e = exp(g - max(g, -1, true)), s = sum(e, -1, true);
  return e / s + sum(e * e, -1, true) / (s * s) + log(s);
}
Tensor norm_of_columns(const Tensor& x) {
  const Tensor g = gelu(x), centered = g - mean(g, 0, true);
  return centered / sqrt(mean(centered * centered, 0, true) + 1e-5);
}

/// Angles of which few are large: those are reduced behind a branch.
Tensor angles(const Tensor& x) {
  const Tensor wide = byte_size(x.dtype()) < 4 ? astype(x, DType::f32) : x;
  return wide * where(wide > 1.5, x.dtype() == DType::f64 ? 1e12 : 1e7, 1.0);
}
Tensor sines_and_cosines(const Tensor& x, int axis) {
  const Tensor a = angles(x), s = sin(a), c = cos(a);
  return softmax(s * 2 + c, axis) + s / (max(abs(c), axis, true) + tan(a) * 1e-3);
}
/// A few rows and all: what is the same for all of the first ones is turned once.
Tensor distances(const Tensor& x) {
  return sum(abs(expand_dims(slice(x, 0, 0, std::min<std::int64_t>(x.size(0), 12)), 1) - x), -1);
}

constexpr Named kPrograms[] = {
    {"softmax of gelu", [](const Tensor& x) { return softmax(gelu(x), -1); }},
    {"softmax of gelu, columns", [](const Tensor& x) { return softmax(gelu(x), 0); }},
    {"layer_norm of gelu", [](const Tensor& x) { return layer_norm(gelu(x)); }},
    {"rms_norm of gelu", [](const Tensor& x) { return rms_norm(gelu(x)); }},
    {"logsumexp of tanh", [](const Tensor& x) { return logsumexp(tanh(x) * 3, -1); }},
    {"entropy", [](const Tensor& x) { return entropy(x, -1); }},
    {"entropy, columns", [](const Tensor& x) { return entropy(x, 0); }},
    {"softmax of softmax", [](const Tensor& x) { return softmax(softmax(gelu(x), -1) * 4, -1); }},
    {"variance of tanh", [](const Tensor& x) { return var(tanh(x), -1); }},
    {"exponentials reused", &reused_exponentials},
    {"normalized columns", &norm_of_columns},
    {"masked softmax", [](const Tensor& x) { return softmax(where(x > 0.5, gelu(x), -1e4), -1); }},
    {"softmax of a transposed chain", [](const Tensor& x) { return softmax(gelu(x).mT(), -1); }},
    {"sines and cosines", [](const Tensor& x) { return sines_and_cosines(x, -1); }},
    {"sines and cosines, columns", [](const Tensor& x) { return sines_and_cosines(x, 0); }},
    {"sums of sines", [](const Tensor& x) { return sum(sin(angles(x)), -1); }},
    {"distances", &distances},
    {"norm over everything", [](const Tensor& x) { return gelu(x) / sqrt(sum(square(gelu(x))) + 1); }},
};

class RowStages : public ::testing::TestWithParam<DType> {
 protected:
  ~RowStages() override { set_compile_policy(policy_); }

  void expect_equal_modes(const Named& named, const Tensor& x) {
    SCOPED_TRACE(std::string(named.name) + " of " + std::to_string(x.size(0)) + " x " + std::to_string(x.size(1)));
    const auto values_in = [&](Mode mode) {
      const ModeGuard guard(mode);
      return named.program(x).to_vector<double>();
    };
    const std::vector<double> eager = values_in(Mode::eager), compiled = values_in(Mode::compiled);
    ASSERT_EQ(compiled.size(), eager.size());
    const double relative = GetParam() == DType::f64 ? 1e-13 : GetParam() == DType::f32 ? 2e-6 : 1e-2;
    for (std::size_t i = 0; i < eager.size(); ++i)
      ASSERT_NEAR(compiled[i], eager[i], relative * std::max(1.0, std::abs(eager[i]))) << "element " << i;
  }

  Generator generator_{5};
  const CompilePolicy policy_ = set_compile_policy(CompilePolicy::immediate);
};
INSTANTIATE_TEST_SUITE_P(DTypes, RowStages, ::testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(RowStages, CompiledGivesWhatEagerGives) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 1},  {5, 7},    {40, 64},  {9, 300},  {2, 8193},
                                                         {70, 3}, {700, 33}, {421, 11}, {1, 20000}};
  for (const auto& [rows, columns] : sizes) {
    const Tensor x = astype(normal({rows, columns}, 0, 1, DType::f32, generator_), GetParam()).sync();
    for (const Named& named : kPrograms) expect_equal_modes(named, x);
  }
}

}  // namespace
}  // namespace fermata::testing

// Arithmetic on complex numbers in fused kernels: the bits of eager mode, for all layouts and lengths.
#include <gtest/gtest.h>

#include <complex>
#include <cstring>
#include <functional>
#include <limits>

#include "fermata/fermata.h"

namespace fermata {
namespace {

using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

Tensor numbers(const Shape& shape, DType dtype, std::uint64_t seed) {
  Generator from(seed);
  const DType part = real_dtype(dtype);
  return complex(uniform(shape, -2, 2, part, from), uniform(shape, -2, 2, part, from)).sync();
}

std::vector<std::complex<double>> bits(const Tensor& x) {
  return x.astype(DType::c128).to_vector<std::complex<double>>();
}

/// Compares every bit; NaN counts as equal to NaN.
void expect_same_in_both_modes(const char* what, const Function& f, const Inputs& inputs) {
  const auto values = [&](Mode mode) {
    const ModeGuard guard(mode);
    std::vector<std::vector<std::complex<double>>> all;
    for (int run = 0; run < 2; ++run) all.push_back(bits(f(inputs)));
    return all;
  };
  const auto eager = values(Mode::eager), compiled = values(Mode::compiled);
  for (std::size_t run = 0; run < 2; ++run) {
    ASSERT_EQ(eager[run].size(), compiled[run].size()) << what;
    for (std::size_t i = 0; i < eager[run].size(); ++i)
      for (const auto& [e, c] :
           {std::pair(eager[run][i].real(), compiled[run][i].real()), {eager[run][i].imag(), compiled[run][i].imag()}})
        ASSERT_TRUE(std::memcmp(&e, &c, sizeof e) == 0 || (std::isnan(e) && std::isnan(c)))
            << what << ": element " << i << " is " << e << " or " << c;
  }
}

const std::pair<const char*, Function> kFunctions[] = {
    {"add", [](const Inputs& in) { return in[0] + in[1] * 0.5; }},
    {"subtract", [](const Inputs& in) { return 1 - in[0] - in[1]; }},
    {"multiply", [](const Inputs& in) { return in[0] * in[1] * in[0]; }},
    {"square", [](const Inputs& in) { return square(in[0]) + conj(in[1]); }},
    {"negative", [](const Inputs& in) { return -in[0] * round(in[1]); }},
    {"abs", [](const Inputs& in) { return abs(in[0] * in[1]) + 1; }},
    {"parts", [](const Inputs& in) { return real(in[0] * in[1]) - imag(in[0]); }},
    {"of parts", [](const Inputs& in) { return complex(imag(in[0]), real(in[1]) * 2) * in[0]; }},
    {"where", [](const Inputs& in) { return where(real(in[0]) > 0, in[0] * in[1], in[1]); }},
    {"equal", [](const Inputs& in) { return (in[0] == round(in[0])) & (in[0] != in[1]); }},
    {"tests", [](const Inputs& in) { return isfinite(in[0] * 1e30) | isnan(in[1]) | isinf(in[0] + in[1]); }},
    {"casts", [](const Inputs& in) { return real(in[0]).astype(DType::c64) * in[1].astype(DType::c128); }},
    {"integers", [](const Inputs& in) { return arange(in[0].shape().back()).astype(in[0].dtype()) * in[0]; }},
    {"to bool", [](const Inputs& in) { return (in[0] - in[0]).astype(DType::boolean); }},
    {"between calls", [](const Inputs& in) { return exp(in[0] * 0.5) * in[1] / (in[0] + 3); }},
    {"reductions", [](const Inputs& in) { return sum(square(abs(in[0])), -1) + max(real(in[1]), -1); }},
    {"sums", [](const Inputs& in) { return sum(in[0] * conj(in[1]), -1); }},
    {"rows", [](const Inputs& in) { return in[0] * softmax(abs(in[1]), -1); }},
    {"columns", [](const Inputs& in) { return in[0] - sum(real(in[1]), 0, true); }},
    {"concat",
     [](const Inputs& in) {
       return concat({in[0] * 2, in[1] - in[0], in[0]}, 0);
     }},
    {"stack",
     [](const Inputs& in) {
       return stack({in[0] * in[1], in[1]}, -1);
     }},
};

class ComplexKernels : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, ComplexKernels, testing::Values(DType::c64, DType::c128),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(ComplexKernels, HaveTheBitsOfCalls) {
  for (const auto& [what, f] : kFunctions)
    for (const std::int64_t length : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 67, 200, 1037})
      expect_same_in_both_modes(what, f, {numbers({3, length}, GetParam(), 1), numbers({3, length}, GetParam(), 2)});
}

TEST_P(ComplexKernels, ReadAllLayouts) {
  const Tensor x = numbers({37, 41}, GetParam(), 3), y = numbers({41, 37}, GetParam(), 4),
               wide = numbers({37, 90}, GetParam(), 5), row = numbers({41}, GetParam(), 6),
               column = numbers({37, 1}, GetParam(), 7);
  for (const auto& [what, f] : kFunctions) {
    const auto check = [&, what = what, &f = f](const Tensor& a, const Tensor& b) {
      expect_same_in_both_modes(what, f, {a, b});
    };
    check(x, y.T());
    check(y.T(), x);
    check(flip(x), x);
    check(x, slice(wide, 1, 3, 44));
    check(slice(wide, 1, 0, 82, 2), x);
    check(x, broadcast_to(row, {37, 41}));
    check(broadcast_to(column, {37, 41}), x);
  }
  expect_same_in_both_modes("one number", kFunctions[2].second, {x, numbers({}, GetParam(), 8)});
  expect_same_in_both_modes("outer", kFunctions[2].second, {column, row});
}

TEST_P(ComplexKernels, MultiplySpecialNumbersAsInTheTextbook) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::complex<double>> all;
  for (const double a : {0.0, -0.0, 1.0, -2.5, 1e30, inf, -inf, nan})
    for (const double b : {0.0, -0.0, 1.0, inf, nan}) all.emplace_back(a, b);
  const Tensor z = tensor(all).astype(GetParam()).sync();
  const auto n = static_cast<std::int64_t>(all.size());
  const Tensor a = copy(broadcast_to(z, {n, n})).sync();
  for (const auto& [what, f] : kFunctions) expect_same_in_both_modes(what, f, {a, a.T()});
  const auto product = (z * tensor(std::complex<double>(1, 1), GetParam())).to_vector<std::complex<double>>();
  EXPECT_TRUE(std::isnan(product[static_cast<std::size_t>(5 * 5 + 3)].real()));  // (inf + inf i) (1 + i): inf - inf
}

TEST_P(ComplexKernels, AreOneStep) {
  const Tensor x = numbers({100}, GetParam(), 9), y = numbers({100}, GetParam(), 10);
  const ModeGuard guard(Mode::compiled);
  const std::string text = explain(real(conj(x * y) * 0.5 + x - y));
  EXPECT_NE(text.find("step 0: kernel"), text.npos) << text;
  EXPECT_EQ(text.find("step 1:"), text.npos) << text;
}

TEST_P(ComplexKernels, WriteInPlace) {
  const auto run = [](Mode mode, DType dtype) {
    const ModeGuard guard(mode);
    Tensor z = copy(numbers({20, 33}, dtype, 11));
    for (int i = 0; i < 4; ++i) {
      z = z * z * 0.5 + conj(z);
      z[1].assign(z[2] * 2 - z[3]);
    }
    return bits(z);
  };
  EXPECT_EQ(run(Mode::eager, GetParam()), run(Mode::compiled, GetParam()));
}

}  // namespace
}  // namespace fermata

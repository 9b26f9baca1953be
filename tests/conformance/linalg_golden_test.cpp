// Complex functions, linear algebra, einsum and Fourier transforms against values that NumPy gave: golden_linalg.txt,
// which golden_linalg.py writes. Every case of the file has a call here, and every call a case.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "fermata/fermata.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using Complex = std::complex<double>;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

struct GoldenCase {
  std::string name;
  Tensors in, out;
};

Tensor read_tensor(std::istringstream& line) {
  std::string dtype_name, sizes, value;
  line >> dtype_name >> sizes;
  const DType dtype = dtype_from_name(dtype_name).value();
  Shape shape;
  std::istringstream list(sizes == "-" ? "" : sizes);
  for (std::string size; std::getline(list, size, ',');) shape.push_back(std::stoll(size));
  std::vector<double> numbers;
  while (line >> value) numbers.push_back(std::stod(value));
  if (!is_complex(dtype)) return tensor(numbers, shape).astype(dtype);
  std::vector<Complex> values;
  for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) values.emplace_back(numbers[i], numbers[i + 1]);
  return from_buffer(values.data(), DType::c128, shape).astype(dtype);
}

std::vector<GoldenCase> golden_cases() {
  std::ifstream file(fermata::test_folder() + "/conformance/golden_linalg.txt");
  EXPECT_TRUE(file) << "golden_linalg.txt is missing";
  std::vector<GoldenCase> cases;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string kind;
    line >> kind;
    if (kind == "case")
      line >> cases.emplace_back().name;
    else
      (kind == "in" ? cases.back().in : cases.back().out).push_back(read_tensor(line));
  }
  return cases;
}

/// What follows the colon of a name: an order, a norm, an equation.
std::string option_of(const std::string& name) {
  const std::size_t colon = name.find(':');
  return colon == std::string::npos ? "" : name.substr(colon + 1);
}

fft::Norm norm_of(const std::string& name) {
  const std::string norm = option_of(name);
  return norm == "ortho" ? fft::Norm::ortho : norm == "forward" ? fft::Norm::forward : fft::Norm::backward;
}

Tensor matrix_norm(const Tensor& x, const std::string& ord) {
  if (ord == "fro" || ord == "nuc") return linalg::matrix_norm(x, false, ord);
  return linalg::matrix_norm(x, false, std::stod(ord));
}

std::map<std::string, Function> complex_functions() {
  std::map<std::string, Function> f;
// clang-format off
#define FERMATA_GOLDEN(function) f[#function] = [](const Tensors& x) { return Tensors{fermata::function(x[0])}; };
  FERMATA_GOLDEN(negative) FERMATA_GOLDEN(conj) FERMATA_GOLDEN(real) FERMATA_GOLDEN(imag) FERMATA_GOLDEN(abs)
  FERMATA_GOLDEN(angle) FERMATA_GOLDEN(sign) FERMATA_GOLDEN(square) FERMATA_GOLDEN(sqrt) FERMATA_GOLDEN(reciprocal)
  FERMATA_GOLDEN(exp) FERMATA_GOLDEN(exp2) FERMATA_GOLDEN(expm1) FERMATA_GOLDEN(log) FERMATA_GOLDEN(log2)
  FERMATA_GOLDEN(log10) FERMATA_GOLDEN(log1p) FERMATA_GOLDEN(sin) FERMATA_GOLDEN(cos) FERMATA_GOLDEN(tanh)
#undef FERMATA_GOLDEN
      // clang-format on
      f["multiply"] = [](const Tensors& x) { return Tensors{x[0] * x[1]}; };
  f["divide"] = [](const Tensors& x) { return Tensors{x[0] / x[1]}; };
  f["pow"] = [](const Tensors& x) { return Tensors{pow(x[0], x[1])}; };
  f["sum"] = [](const Tensors& x) { return Tensors{sum(x[0], 1)}; };
  f["prod"] = [](const Tensors& x) { return Tensors{prod(x[0], 0)}; };
  f["mean"] = [](const Tensors& x) { return Tensors{mean(x[0])}; };
  f["var"] = [](const Tensors& x) { return Tensors{var(x[0])}; };
  return f;
}

std::map<std::string, Function> linear_algebra() {
  using namespace linalg;
  std::map<std::string, Function> f;
  f["matmul"] = [](const Tensors& x) { return Tensors{fermata::matmul(x[0], x[1])}; };
  f["solve"] = f["solve_vector"] = [](const Tensors& x) { return Tensors{solve(x[0], x[1])}; };
  f["inv"] = [](const Tensors& x) { return Tensors{inv(x[0])}; };
  f["det"] = [](const Tensors& x) { return Tensors{det(x[0])}; };
  f["slogdet"] = [](const Tensors& x) { return Tensors{slogdet(x[0]).sign, slogdet(x[0]).logabsdet}; };
  f["cholesky"] = [](const Tensors& x) { return Tensors{cholesky(x[0])}; };
  f["eigvalsh"] = [](const Tensors& x) { return Tensors{eigvalsh(x[0])}; };
  f["eigh"] = [](const Tensors& x) { return Tensors{eigh(x[0]).eigenvalues, abs(eigh(x[0]).eigenvectors)}; };
  f["svdvals"] = [](const Tensors& x) { return Tensors{svdvals(x[0])}; };
  f["svd"] = [](const Tensors& x) {
    const auto [u, s, vh] = svd(x[0]);
    return Tensors{abs(u), abs(vh)};
  };
  f["qr"] = [](const Tensors& x) { return Tensors{qr(x[0]).q, qr(x[0]).r}; };
  f["qr_complete"] = [](const Tensors& x) { return Tensors{qr(x[0], "complete").q, qr(x[0], "complete").r}; };
  f["pinv"] = [](const Tensors& x) { return Tensors{pinv(x[0])}; };
  f["lstsq"] = [](const Tensors& x) { return Tensors{lstsq(x[0], x[1]).solution, lstsq(x[0], x[1]).residuals}; };
  f["matrix_rank"] = [](const Tensors& x) { return Tensors{matrix_rank(x[0])}; };
  f["matrix_power"] = [](const Tensors& x) { return Tensors{matrix_power(x[0], 5)}; };
  f["matrix_power_inverse"] = [](const Tensors& x) { return Tensors{matrix_power(x[0], -2)}; };
  f["cross"] = [](const Tensors& x) { return Tensors{cross(x[0], x[1])}; };
  f["outer"] = [](const Tensors& x) { return Tensors{outer(x[0], x[1])}; };
  f["kron"] = [](const Tensors& x) { return Tensors{kron(x[0], x[1])}; };
  f["trace"] = [](const Tensors& x) { return Tensors{trace(x[0], 1)}; };
  f["diagonal"] = [](const Tensors& x) { return Tensors{diagonal(x[0], -1)}; };
  f["tensordot"] = [](const Tensors& x) { return Tensors{fermata::tensordot(x[0], x[1], 1)}; };
  f["tensordot_axes"] = [](const Tensors& x) { return Tensors{fermata::tensordot(x[0], x[1], {0, 2}, {1, 0})}; };
  f["vecdot"] = [](const Tensors& x) { return Tensors{fermata::vecdot(x[0], x[1])}; };
  return f;
}

std::map<std::string, Function> transforms() {
  std::map<std::string, Function> f;
  f["fft_long"] = [](const Tensors& x) { return Tensors{fft::fft(x[0], 9, 0)}; };
  f["fft_short"] = [](const Tensors& x) { return Tensors{fft::fft(x[0], 4, 0)}; };
  f["fftshift"] = [](const Tensors& x) { return Tensors{fft::fftshift(x[0])}; };
  f["ifftshift"] = [](const Tensors& x) { return Tensors{fft::ifftshift(x[0])}; };
  return f;
}

/// Calls whose name says more than which function it is.
Tensors run_with_option(const std::string& function, const std::string& name, const Tensors& x) {
  const fft::Norm norm = norm_of(name);
  if (function == "einsum") return {einsum(option_of(name), x)};
  if (function == "vector_norm") return {linalg::vector_norm(x[0], 0, false, std::stod(option_of(name)))};
  if (function == "matrix_norm") return {matrix_norm(x[0], option_of(name))};
  if (function == "fft") return {fft::fft(x[0], {}, -1, norm)};
  if (function == "ifft") return {fft::ifft(x[0], {}, -1, norm)};
  if (function == "rfft") return {fft::rfft(x[0], {}, -1, norm)};
  if (function == "irfft") return {fft::irfft(x[0], {}, -1, norm)};
  if (function == "hfft") return {fft::hfft(x[0], {}, -1, norm)};
  if (function == "ihfft") return {fft::ihfft(x[0], {}, -1, norm)};
  if (function == "fftn") return {fft::fftn(x[0], {}, {}, norm)};
  if (function == "ifftn") return {fft::ifftn(x[0], {}, {}, norm)};
  if (function == "rfftn") return {fft::rfftn(x[0], {}, {}, norm)};
  if (function == "irfftn") return {fft::irfftn(x[0], {}, {}, norm)};
  return {};
}

/// Parts are compared one by one: a part that is infinite or NaN says nothing of the other.
void expect_part(double found, double expected, double error, std::size_t at) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return;
  EXPECT_LE(std::abs(found - expected), error) << "element " << at << ": " << found << ", not " << expected;
}

void expect_golden(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(to_string(found.dtype(), found.shape()), to_string(expected.dtype(), expected.shape()));
  const std::vector<Complex> a = found.to_vector<Complex>(), b = expected.to_vector<Complex>();
  double scale = 1e-300;
  for (const Complex z : b) {
    if (std::isfinite(z.real())) scale = std::max(scale, std::abs(z.real()));
    if (std::isfinite(z.imag())) scale = std::max(scale, std::abs(z.imag()));
  }
  const double error = scale * (byte_size(real_dtype(found.dtype())) == 8 ? 1e-12 : 2e-6);
  for (std::size_t i = 0; i < a.size(); ++i)
    expect_part(a[i].real(), b[i].real(), error, i), expect_part(a[i].imag(), b[i].imag(), error, i);
}

class Golden : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Golden, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(Golden, ComplexLinearAlgebraAndFourier) {
  const ModeGuard mode(GetParam());
  std::map<std::string, Function> functions = complex_functions();
  functions.merge(linear_algebra());
  functions.merge(transforms());
  std::set<std::string> unused;
  for (const auto& [name, f] : functions) unused.insert(name);
  int checked = 0;
  for (const GoldenCase& golden : golden_cases()) {
    SCOPED_TRACE(golden.name);
    std::string name = golden.name;
    for (const std::string_view suffix : {".complex", ".special", ".c64"})
      if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    const std::string function = name.substr(0, name.find(':'));
    unused.erase(function);
    const auto known = functions.find(function);
    const Tensors results =
        known != functions.end() ? known->second(golden.in) : run_with_option(function, name, golden.in);
    ASSERT_EQ(results.size(), golden.out.size());
    for (std::size_t i = 0; i < results.size(); ++i) expect_golden(results[i], golden.out[i]);
    ++checked;
  }
  EXPECT_GT(checked, 200);
  EXPECT_TRUE(unused.empty()) << "no case of " << *unused.begin();
}

}  // namespace
}  // namespace fermata

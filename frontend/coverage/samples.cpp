// The inputs of rows: their text, and the values of each domain. tests/conformance/golden.py computes the same values.
#include <algorithm>
#include <cmath>
#include <complex>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/coverage/coverage.h"
#include "ir/error.h"

namespace fermata::coverage {
namespace {

constexpr double kGoldenRatio = 0.6180339887498949;  // 1 / phi

bool is_whole(const Input& input) { return input.domain == "integer" || input.domain == "truth"; }

/// a a^T / 4 + 2.
Tensor positive_definite(const Tensor& a) { return matmul(a, transpose(a)) / 4 + 2 * eye(a.size(-1), {}, DType::f64); }

Tensor sample(const Input& input, std::size_t k, DType dtype) {
  if (input.domain == "complex") {
    std::vector<std::complex<double>> values;
    for (std::int64_t i = 0; i < element_count(input.sizes); ++i)
      values.emplace_back(sample_value(input, k, 2 * i), sample_value(input, k, 2 * i + 1));
    const Tensor wide = tensor(values, input.sizes);
    return is_complex(dtype) ? astype(wide, dtype) : is_floating(dtype) ? wide : astype(real(wide), dtype);
  }
  const bool integers = is_integer(dtype);
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(input.sizes); ++i) {
    double value = sample_value(input, k, i);
    if (integers && follows_dtype(input) && !is_whole(input)) value = std::trunc(value * 4);
    if (integers && info(dtype).kind == DTypeKind::unsigned_integer) value = std::fabs(value);
    values.push_back(value);
  }
  const Tensor wide = tensor(values, input.sizes);
  if (input.domain == "spd") return astype(positive_definite(wide), dtype);
  if (input.domain == "boolean") return astype(wide, DType::boolean);
  if (input.domain == "index") return astype(wide, DType::i64);
  return astype(wide, dtype);
}

}  // namespace

std::vector<Input> parse_inputs(std::string_view text) {
  std::vector<Input> inputs;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t open = one.find('['), limit = one.find('(');
    if (open == std::string_view::npos) throw_internal("a row of the coverage table has an input without sizes");
    Input input;
    input.domain = one.substr(0, std::min(open, limit));
    if (limit < open) input.limit = std::stoll(std::string(one.substr(limit + 1)));
    std::string sizes(one.substr(open + 1, one.size() - open - 2));
    while (!sizes.empty()) {
      std::size_t used = 0;
      input.sizes.push_back(std::stoll(sizes, &used));
      sizes.erase(0, std::min(used + 1, sizes.size()));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

namespace {
/// A number in [0, 1) from a hash: rows of such numbers are far from multiples of each other.
double scattered(std::size_t k, std::int64_t i) {
  const auto mixed = static_cast<std::uint32_t>(i * i * i * 7 + i * 131 + static_cast<std::int64_t>(k) * 977 + 13);
  return static_cast<double>(mixed * 2654435761u) * 0x1p-32;
}
}  // namespace

double sample_value(const Input& input, std::size_t k, std::int64_t i) {
  double whole;
  const double u = std::modf(static_cast<double>(7 * i + 3 * static_cast<std::int64_t>(k) + 1) * kGoldenRatio, &whole);
  if (input.domain == "scattered") return -2 + 4 * scattered(k, i);
  if (input.domain == "any" || input.domain == "spd" || input.domain == "complex") return -2 + 4 * u;
  if (input.domain == "unit") return -0.9 + 1.8 * u;
  if (input.domain == "positive") return 0.3 + 2 * u;
  if (input.domain == "above_one") return 1.1 + 2 * u;
  if (input.domain == "boolean" || input.domain == "truth") return u < 0.5 ? 0 : 1;
  if (input.domain == "integer") return std::floor(-3 + 7 * u);
  if (input.domain == "index") return std::floor(static_cast<double>(input.limit) * u);
  throw_internal("no domain of the coverage table is called " + input.domain);
}

bool follows_dtype(const Input& input) { return input.domain != "boolean" && input.domain != "index"; }

DType main_dtype(const Function& function) {
  const std::vector<Input> inputs = parse_inputs(function.inputs);
  const bool whole = std::ranges::any_of(inputs, [](const Input& i) { return i.domain == "integer"; });
  const bool truth = std::ranges::any_of(inputs, [](const Input& i) { return i.domain == "truth"; });
  return whole ? DType::i64 : truth ? DType::boolean : DType::f64;
}

std::vector<Tensor> sample_inputs(std::span<const Input> inputs, DType dtype) {
  std::vector<Tensor> tensors;
  for (std::size_t k = 0; k < inputs.size(); ++k) tensors.push_back(sample(inputs[k], k, dtype));
  return tensors;
}

}  // namespace fermata::coverage

// Runs a row: every dtype, both modes, its derivative against differences, its vmap against a loop.
#include <cmath>
#include <complex>
#include <limits>

#include "fermata/fermata.h"
#include "frontend/coverage/coverage.h"

namespace fermata::coverage {
namespace {

constexpr double kStep = 1e-6, kDerivativeError = 1e-5, kModeError = 1e-12;

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

Results in_mode(const Function& f, Mode mode, std::span<const Tensor> inputs) {
  const ModeGuard guard(mode);
  Results results = f.call(inputs);
  for (const Tensor& r : results) r.sync();
  return results;
}

/// The sum of all floating results, and the parts of complex ones, with weights that differ, as one number in double.
Tensor weighted(const Results& results) {
  Tensor total;
  Results parts;
  for (const Tensor& r : results) {
    if (is_complex(r.dtype()))
      parts.push_back(real(r)), parts.push_back(imag(r));
    else if (is_floating(r.dtype()))
      parts.push_back(r);
  }
  for (const Tensor& r : parts) {
    const Tensor flat = reshape(r, -1);
    const Tensor weight = sin(iota({r.element_count()}, 0) * 1.7 + 0.3);
    const Tensor part = sum(astype(flat, DType::f64) * weight);
    total = total.defined() ? total + part : part;
  }
  return total;
}

struct Differentiated {
  const Function& f;
  std::vector<Tensor> inputs;
  std::vector<std::size_t> wanted;  // inputs that are floating

  double at(std::size_t k, std::size_t element, double step) const {
    std::vector<Tensor> moved = inputs;
    std::vector<double> values = inputs[k].to_vector<double>();
    values[element] += step;
    moved[k] = tensor(values, inputs[k].shape());
    return weighted(f.call(moved)).item<double>();
  }
  std::vector<double> differences(std::size_t k) const {
    std::vector<double> slopes;
    for (std::size_t i = 0; i < static_cast<std::size_t>(inputs[k].element_count()); ++i)
      slopes.push_back((at(k, i, kStep) - at(k, i, -kStep)) / (2 * kStep));
    return slopes;
  }
};

bool near(double got, double wanted) { return std::fabs(got - wanted) <= kDerivativeError * (1 + std::fabs(wanted)); }

Verdict check_vjp(const Differentiated& d, std::string& trouble) {
  std::vector<Tensor> marked = d.inputs;
  std::vector<Tensor> leaves;
  for (const std::size_t k : d.wanted) {
    marked[k] = copy(d.inputs[k]);
    marked[k].requires_grad(true);
    leaves.push_back(marked[k]);
  }
  std::vector<Tensor> gradients;
  bool depends = true;
  try {
    const Tensor y = weighted(d.f.call(marked));
    if (!y.defined()) return Verdict::not_applicable;
    depends = y.requires_grad();
    if (depends) gradients = fermata::gradients(y, leaves);
  } catch (const Error& e) {
    trouble = first_line(e.what());
    return Verdict::refused;
  }
  bool all_zero = true;
  for (std::size_t i = 0; i < d.wanted.size(); ++i) {
    const std::vector<double> slopes = d.differences(d.wanted[i]);
    const std::vector<double> got =
        depends ? gradients[i].to_vector<double>() : std::vector<double>(slopes.size(), 0.0);
    for (std::size_t e = 0; e < slopes.size(); ++e) {
      if (!near(got[e], slopes[e])) {
        trouble = "vjp: " + std::to_string(got[e]) + ", not " + std::to_string(slopes[e]);
        return Verdict::wrong;
      }
      all_zero &= got[e] == 0;
    }
  }
  return all_zero ? Verdict::constant : Verdict::right;
}

/// Along one direction that moves all floating inputs, against the differences by element.
Verdict check_jvp(const Differentiated& d, std::string& trouble) {
  std::vector<Tensor> primals, tangents;
  double wanted = 0;
  bool all_zero = true;
  for (const std::size_t k : d.wanted) {
    const Tensor& x = d.inputs[k];
    primals.push_back(x);
    tangents.push_back(reshape(cos(iota({x.element_count()}, 0) * 0.7 + static_cast<double>(k)), x.shape()));
    tangents.back() = astype(tangents.back(), DType::f64);
    const std::vector<double> slopes = d.differences(k), along = tangents.back().to_vector<double>();
    for (std::size_t e = 0; e < slopes.size(); ++e) {
      wanted += slopes[e] * along[e];
      all_zero &= std::fabs(slopes[e]) < kDerivativeError;
    }
  }
  try {
    const auto along_inputs = [&](const std::vector<Tensor>& moved) {
      std::vector<Tensor> inputs = d.inputs;
      for (std::size_t i = 0; i < d.wanted.size(); ++i) inputs[d.wanted[i]] = moved[i];
      return weighted(d.f.call(inputs));
    };
    const double got = jvp(along_inputs, primals, tangents).second.item<double>();
    if (std::fabs(got - wanted) <= 10 * kDerivativeError * (1 + std::fabs(wanted)))
      return all_zero ? Verdict::constant : Verdict::right;
    trouble = "jvp: " + std::to_string(got) + ", not " + std::to_string(wanted);
    return Verdict::wrong;
  } catch (const Error& e) {
    trouble = first_line(e.what());
    return Verdict::refused;
  }
}

/// Two examples at once against one after the other.
Verdict check_vmap(const Function& f, std::span<const Tensor> inputs, std::string& trouble) {
  if (inputs.empty()) return Verdict::not_applicable;
  std::vector<Tensor> second, both;
  for (const Tensor& x : inputs) second.push_back(flip(x)), both.push_back(stack({x, second.back()}));
  Results together;
  try {
    together = vmap([&](const std::vector<Tensor>& xs) { return f.call(xs); })(both);
    for (const Tensor& r : together) r.sync();
  } catch (const Error& e) {
    trouble = first_line(e.what());
    return Verdict::refused;
  }
  const Results a = f.call(inputs), b = f.call(second);
  Results wanted;
  for (std::size_t i = 0; i < a.size(); ++i) wanted.push_back(stack({a[i], b[i]}));
  if (difference(together, wanted) <= kModeError) return Verdict::right;
  trouble = "vmap differs from a loop";
  return Verdict::wrong;
}

bool accepts(const Function& f, std::span<const Input> inputs, DType dtype) {
  try {
    in_mode(f, Mode::eager, sample_inputs(inputs, dtype));
    return true;
  } catch (const Error&) { return false; }
}

}  // namespace

std::string_view name(Verdict verdict) {
  switch (verdict) {
    case Verdict::right: return "yes";
    case Verdict::constant: return "zero";
    case Verdict::not_applicable: return "-";
    case Verdict::refused: return "refused";
    case Verdict::wrong: return "WRONG";
  }
  return "";
}

std::vector<double> values_of(const Tensor& x) {
  if (!is_complex(x.dtype())) return x.to_vector<double>();
  std::vector<double> parts;
  for (const std::complex<double>& z : x.to_vector<std::complex<double>>())
    parts.push_back(z.real()), parts.push_back(z.imag());
  return parts;
}

double difference(const Results& a, const Results& b) {
  constexpr double kDifferent = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kDifferent;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].dtype() != b[i].dtype() || a[i].shape() != b[i].shape()) return kDifferent;
    const std::vector<double> left = values_of(a[i]), right = values_of(b[i]);
    for (std::size_t e = 0; e < left.size(); ++e) {
      if (left[e] == right[e] || (std::isnan(left[e]) && std::isnan(right[e]))) continue;
      const double apart = std::fabs(left[e] - right[e]) / (1 + std::fabs(right[e]));
      worst = std::isnan(apart) ? kDifferent : std::max(worst, apart);
    }
  }
  return worst;
}

Finding examine(const Function& f) {
  Finding found;
  const std::vector<Input> inputs = parse_inputs(f.inputs);
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (!is_quantized(dtype) && accepts(f, inputs, dtype)) found.dtypes = found.dtypes | dtype;
  }
  const std::vector<Tensor> given = sample_inputs(inputs, main_dtype(f));
  try {
    const Results eager = in_mode(f, Mode::eager, given);
    found.eager = true;
    const Results compiled = in_mode(f, Mode::compiled, given);
    found.compiled = true;
    found.equal = difference(compiled, eager) <= kModeError;
  } catch (const Error& e) {
    found.trouble = first_line(e.what());
    return found;
  }
  Differentiated d{f, given, {}};
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (is_floating(given[k].dtype())) d.wanted.push_back(k);
  if (!d.wanted.empty()) found.vjp = check_vjp(d, found.trouble);
  if (found.vjp == Verdict::right || found.vjp == Verdict::constant) found.jvp = check_jvp(d, found.trouble);
  std::string vmap_trouble;
  found.vmap = check_vmap(f, given, vmap_trouble);
  if (found.trouble.empty()) found.trouble = vmap_trouble;
  return found;
}

}  // namespace fermata::coverage

// Whether two results are the same, or close.
#pragma once

#include <fermata/fermata.h>

#include <cmath>
#include <complex>
#include <string>
#include <vector>

namespace fermata::test {

inline std::vector<std::complex<double>> numbers_in(const Tensor& x) {
  if (is_complex(x.dtype())) return x.to_vector<std::complex<double>>();
  std::vector<std::complex<double>> numbers;
  for (const double v : x.to_vector<double>()) numbers.emplace_back(v);
  return numbers;
}

inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 1e-2;
    case DType::bf16: return 8e-2;
    case DType::f64:
    case DType::c128: return 1e-10;
    default: return is_integer(dtype) || dtype == DType::boolean ? 0 : 1e-4;
  }
}

/// Empty where two results are the same, or close.
inline std::string difference(const Tensor& want, const Tensor& got) {
  if (want.dtype() != got.dtype() || want.shape() != got.shape())
    return "is " + to_string(got.dtype(), got.shape()) + ", not " + to_string(want.dtype(), want.shape());
  const auto a = numbers_in(want), b = numbers_in(got);
  double scale = 1;
  for (const auto& v : a)
    if (std::isfinite(std::abs(v))) scale = std::max(scale, std::abs(v));
  const double tolerance = tolerance_of(want.dtype());
  const auto is_same = [&](double x, double y) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return x == y || std::abs(x - y) <= tolerance * scale;
  };
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!is_same(a[i].real(), b[i].real()) || !is_same(a[i].imag(), b[i].imag()))
      return "element " + std::to_string(i) + " is " + std::to_string(b[i].real()) + ", not " +
             std::to_string(a[i].real());
  return {};
}

}  // namespace fermata::test

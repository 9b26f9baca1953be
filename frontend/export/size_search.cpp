// See size_search.h.
#include "frontend/export/size_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "frontend/run/record_table.h"

namespace fermata {
namespace {

constexpr std::size_t kMostFactors = 3;
constexpr std::int64_t kLargestDivisor = 256;

bool is_constant(std::span<const std::int64_t> v) {
  return std::ranges::all_of(v, [&](std::int64_t x) { return x == v[0]; });
}

std::optional<SizeExpression> scaled(std::span<const std::int64_t> v, std::span<const std::int64_t> m) {
  const auto other = std::ranges::find_if(m, [&](std::int64_t x) { return x != m[0]; });
  if (other == m.end()) return std::nullopt;
  const auto at = static_cast<std::size_t>(other - m.begin());
  const std::int64_t rise = v[at] - v[0], run = m[at] - m[0];
  if (rise % run != 0) return std::nullopt;
  const std::int64_t factor = rise / run, offset = v[0] - factor * m[0];
  for (std::size_t k = 0; k < v.size(); ++k)
    if (v[k] != factor * m[k] + offset) return std::nullopt;
  return SizeExpression{.offset = offset, .terms = {{factor, {}}}};
}

/// floor((m + b) / q)
std::optional<SizeExpression> divided(std::span<const std::int64_t> v, std::span<const std::int64_t> m) {
  for (std::int64_t q = 2; q <= kLargestDivisor; ++q) {
    std::int64_t least = INT64_MIN, most = INT64_MAX;
    for (std::size_t k = 0; k < v.size(); ++k) {
      least = std::max(least, q * v[k] - m[k]);
      most = std::min(most, q * v[k] - m[k] + q - 1);
    }
    if (least > most) continue;
    // Rounding down or up is likelier than anything between.
    const std::int64_t b = least <= 0 && 0 <= most ? 0 : least <= q - 1 && q - 1 <= most ? q - 1 : least;
    return SizeExpression{.offset = b, .divisor = q, .terms = {{1, {}}}};
  }
  return std::nullopt;
}

/// a m + b n + c
std::optional<SizeExpression> added(std::span<const std::int64_t> v, std::span<const std::int64_t> m,
                                    std::span<const std::int64_t> n) {
  for (std::size_t i = 1; i < v.size(); ++i)
    for (std::size_t j = i + 1; j < v.size(); ++j) {
      const std::int64_t m1 = m[i] - m[0], m2 = m[j] - m[0], n1 = n[i] - n[0], n2 = n[j] - n[0];
      const std::int64_t v1 = v[i] - v[0], v2 = v[j] - v[0], det = m1 * n2 - m2 * n1;
      if (det == 0) continue;
      if ((v1 * n2 - v2 * n1) % det != 0 || (m1 * v2 - m2 * v1) % det != 0) return std::nullopt;
      const std::int64_t a = (v1 * n2 - v2 * n1) / det, b = (m1 * v2 - m2 * v1) / det, c = v[0] - a * m[0] - b * n[0];
      for (std::size_t k = 0; k < v.size(); ++k)
        if (v[k] != a * m[k] + b * n[k] + c) return std::nullopt;
      return SizeExpression{.offset = c, .terms = {{a, {}}, {b, {}}}};
    }
  return std::nullopt;
}

double number_of(std::uint64_t bits, DType dtype) {
  double value = 0;
  visit_compute(dtype, [&]<class T>() {
    T x;
    std::memcpy(&x, &bits, sizeof x);
    value = static_cast<double>(x);
  });
  return value;
}

}  // namespace

void SizeSearch::add(SizeVariable variable, std::vector<std::int64_t> values) {
  if (is_constant(values)) return;
  if (std::ranges::none_of(known_, [&](const Known& k) { return k.values == values; }))
    known_.push_back({variable, std::move(values)});
}

std::vector<SizeSearch::Product> SizeSearch::products(std::size_t most) const {
  std::vector<Product> all;
  for (const Known& k : known_) all.push_back({{k.variable}, k.values});
  for (std::size_t begin = 0, factors = 2; factors <= most; ++factors) {
    const std::size_t end = all.size();
    for (; begin < end; ++begin)
      for (const Known& k : known_) {
        Product p = all[begin];
        p.factors.push_back(k.variable);
        for (std::size_t i = 0; i < samples_; ++i) p.values[i] *= k.values[i];
        if (std::ranges::none_of(all, [&](const Product& o) { return o.values == p.values; }))
          all.push_back(std::move(p));
      }
  }
  return all;
}

std::optional<SizeExpression> SizeSearch::find(std::span<const std::int64_t> values) const {
  if (is_constant(values)) return SizeExpression{.offset = values[0]};
  const std::vector<Product> all = products(kMostFactors);
  // What is nothing but a size or a product of sizes comes before all that is computed of them.
  for (const bool exact : {true, false})
    for (const Product& p : all) {
      auto x = scaled(values, p.values);
      if (!x || (exact && (x->offset != 0 || x->terms[0].coefficient != 1))) continue;
      x->terms[0].factors = p.factors;
      return x;
    }
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size() && all[j].factors.size() < kMostFactors; ++j)
      if (auto x = added(values, all[i].values, all[j].values)) {
        x->terms[0].factors = all[i].factors, x->terms[1].factors = all[j].factors;
        return x;
      }
  for (const Product& p : all)
    if (auto x = divided(values, p.values)) {
      x->terms[0].factors = p.factors;
      return x;
    }
  return std::nullopt;
}

std::optional<NumberExpression> SizeSearch::find(std::span<const std::uint64_t> bits, DType dtype) const {
  if (std::ranges::all_of(bits, [&](std::uint64_t b) { return b == bits[0]; }))
    return NumberExpression{.form = NumberExpression::Form::bits, .dtype = dtype, .bits = bits[0]};
  const auto gives = [&](const NumberExpression& x, std::span<const std::int64_t> sizes) {
    for (std::size_t k = 0; k < bits.size(); ++k)
      if (bits_of_number(x, sizes[k]) != bits[k]) return false;
    return true;
  };
  std::vector<std::int64_t> whole;
  for (const std::uint64_t b : bits) {
    const double value = number_of(b, dtype);
    if (std::nearbyint(value) == value && std::abs(value) < 0x1p53) whole.push_back(static_cast<std::int64_t>(value));
  }
  if (whole.size() == bits.size())
    if (const auto size = find(whole)) {
      const NumberExpression x{.form = NumberExpression::Form::value, .dtype = dtype, .size = *size};
      if (gives(x, whole)) return x;
    }
  using Form = NumberExpression::Form;
  for (const Product& p : products(kMostFactors))
    for (const Form form : {Form::value, Form::reciprocal, Form::root, Form::reciprocal_root}) {
      NumberExpression x{.form = form, .dtype = dtype, .size = {.terms = {{1, p.factors}}}};
      const double unit =
          number_of(bits_of_number({.form = form, .dtype = DType::f64, .size = {}}, p.values[0]), DType::f64);
      const double raw = number_of(bits[0], dtype) / unit;
      for (const double factor : {std::nearbyint(raw), 1 / std::nearbyint(1 / raw), raw}) {
        x.factor = factor;
        if (gives(x, p.values)) return x;
      }
    }
  return std::nullopt;
}

}  // namespace fermata

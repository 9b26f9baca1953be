// See incomplete_functions.h.
//
// Incomplete gamma and beta functions: series and continued fractions of DLMF 8.11.4, 8.9.2 and 8.17.22, whose factors
// in front are taken relative to their peak, so that nothing cancels; the uniform expansion of N. M. Temme (SIAM J.
// Math. Anal. 10, 1979; DLMF 8.12) near the peak of large orders. The zeta function: Euler and Maclaurin's sum
// (DLMF 25.11.28) with the reflection of terms below zero.
#include "frontend/ops/incomplete_functions.h"

#include <math.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "ir/scalar_math/gamma_functions.h"

namespace fermata {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = 0x1p-53, kTwoPi = 6.283185307179586;
constexpr double kLargeOrder = 10;  // from here on by Stirling's series
constexpr int kMostSteps = 20000;

double log_gamma(double x) {
  int sign;  // std::lgamma writes a global
  return ::lgamma_r(x, &sign);
}

template <std::size_t N> double polynomial(double x, const std::array<double, N>& c) {
  double sum = c[0];
  for (std::size_t i = 1; i < N; ++i) sum = std::fma(sum, x, c[i]);
  return sum;
}

/// log Gamma(1 + a) for 0 <= a < 1.3, with its relative accuracy at 0.
double log_gamma1p(double a) {
  if (a > 0.5) return log_gamma(1 + a);
  return a * polynomial(a, math::GammaConstants<double>::kLogGammaNear) - std::log1p(a);
}

/// log Gamma(a) - ((a - 1/2) log a - a + log(2 pi) / 2) for a >= 10.
double stirling_rest(double a) { return polynomial(1 / (a * a), math::GammaConstants<double>::kLogGammaFar) / a; }

/// u - log(1 + u) for u = ratio - 1 > -1.
double log_deficit(double ratio, double u) {
  if (std::fabs(u) > 0.5) return u - std::log(ratio);
  // log(1 + u) = 2 atanh(r) with r = u / (2 + u), and u - 2 r = r u.
  const double r = u / (2 + u), square = r * r;
  double sum = 0, power = 1;
  for (int k = 3; power > kEpsilon; k += 2) sum += power / k, power *= square;
  return r * (u - 2 * square * sum);
}

/// x^a e^-x / Gamma(a + 1).
double gamma_factor(double a, double x) {
  if (a < kLargeOrder) return std::exp(a * std::log(x) - x - log_gamma(a + 1));
  return std::exp(-a * log_deficit(x / a, (x - a) / a) - stirling_rest(a)) / std::sqrt(kTwoPi * a);
}

/// P(a, x) over its factor.
double lower_series(double a, double x) {
  double sum = 1, term = 1;
  for (int k = 1; k < kMostSteps && term > sum * kEpsilon; ++k) term *= x / (a + k), sum += term;
  return sum;
}

/// Q(a, x) over a times its factor: Lentz's method.
double upper_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, h = d;
  for (int k = 1; k < kMostSteps; ++k) {
    const double n = -k * (k - a);
    b += 2;
    d = n * d + b, c = b + n / c;
    if (std::fabs(d) < kTiny) d = kTiny;
    if (std::fabs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double step = d * c;
    h *= step;
    if (std::fabs(step - 1) < kEpsilon * 2) break;
  }
  return h;
}

/// Q(a, x) for small a and x, where 1 - P would cancel.
double upper_of_small(double a, double x) {
  double sum = 0, power = 1;
  for (int n = 1; n < kMostSteps; ++n) {
    power *= -x / n;
    const double term = power / (a + n);
    sum += term;
    if (std::fabs(term) <= kEpsilon * std::fabs(sum)) break;
  }
  const double logarithm = std::log(x), size = log_gamma1p(a);
  return -std::expm1(a * logarithm - size) - a * std::exp(a * logarithm - size) * sum;
}

// Coefficients c_k of DLMF 8.12.12 in powers of eta, from its recurrence in rational numbers.
constexpr double kUniform0[] = {-0.3333333333333333,     0.08333333333333333,     -0.014814814814814815,
                                0.0011574074074074073,   0.0003527336860670194,   -0.0001787551440329218,
                                3.919263178522438e-05,   -2.185448510679992e-06,  -1.85406221071516e-06,
                                8.296711340953087e-07,   -1.7665952736826078e-07, 6.707853543401498e-09,
                                1.0261809784240309e-08,  -4.382036018453353e-09,  9.14769958223679e-10,
                                -2.5514193994946248e-11, -5.830772132550426e-11,  2.4361948020667415e-11};
constexpr double kUniform1[] = {
    -0.001851851851851852,   -0.003472222222222222,   0.0026455026455026454,   -0.0009902263374485596,
    0.00020576131687242798,  -4.018775720164609e-07,  -1.8098550334489977e-05, 7.64916091608111e-06,
    -1.6120900894563446e-06, 4.647127802807434e-09,   1.378633446915721e-07,   -5.752545603517705e-08,
    1.1951628599778148e-08,  -1.7543241719747647e-11, -1.0091543710600413e-09, 4.162792991842583e-10};
constexpr double kUniform2[] = {0.004133597883597883,    -0.0026813271604938273, 0.0007716049382716049,
                                2.0093878600823047e-06,  -0.0001073665322636516, 5.2923448829120125e-05,
                                -1.2760635188618728e-05, 3.423578734096138e-08,  1.3721957309062934e-06,
                                -6.298992138380055e-07,  1.4280614206064242e-07, -2.0477098421990866e-10,
                                -1.409252991086752e-08,  6.228974084922022e-09};
constexpr double kUniform3[] = {0.0006494341563786008,   0.00022947209362139917,  -0.0004691894943952557,
                                0.00026772063206283885,  -7.561801671883977e-05,  -2.396505113867297e-07,
                                1.1082654115347302e-05,  -5.6749528269915965e-06, 1.4230900732435883e-06,
                                -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08};
constexpr double kUniform4[] = {-0.0008618882909167117,  0.0007840392217200666, -0.0002990724803031902,
                                -1.4638452578843418e-06, 6.641498215465122e-05, -3.968365047179435e-05,
                                1.1375726970678419e-05,  2.507497226237533e-10, -1.6954149536558305e-06,
                                8.907507532205309e-07};
constexpr double kUniform5[] = {-0.00033679855336635813, -6.972813758365857e-05, 0.0002772753244959392,
                                -0.00019932570516188847, 6.797780477937208e-05,  1.419062920643967e-07,
                                -1.3594048189768693e-05, 8.018470256334202e-06};
constexpr double kUniform6[] = {0.0005313079364639922, -0.0005921664373536939, 0.0002708782096718045,
                                7.902353232660328e-07, -8.153969367561969e-05, 5.61168275310625e-05};
constexpr std::array<std::span<const double>, 7> kUniform = {kUniform0, kUniform1, kUniform2, kUniform3,
                                                             kUniform4, kUniform5, kUniform6};

IncompleteGamma uniform_expansion(double a, double x) {
  const double u = (x - a) / a, half_square = log_deficit(x / a, u);
  const double eta = std::copysign(std::sqrt(2 * half_square), u);
  double sum = 0;
  for (std::size_t k = kUniform.size(); k-- > 0;) {
    double c = 0;
    for (std::size_t i = kUniform[k].size(); i-- > 0;) c = std::fma(c, eta, kUniform[k][i]);
    sum = sum / a + c;
  }
  const double rest = std::exp(-a * half_square) / std::sqrt(kTwoPi * a) * sum, at = eta * std::sqrt(a / 2);
  return {std::erfc(-at) / 2 - rest, std::erfc(at) / 2 + rest};
}

IncompleteGamma from_lower(double p) { return {p, 1 - p}; }
IncompleteGamma from_upper(double q) { return {1 - q, q}; }

}  // namespace

IncompleteGamma incomplete_gamma(double a, double x) {
  if (!(a >= 0) || !(x >= 0) || (a == kInfinity && x == kInfinity)) return {kNaN, kNaN};
  if (a == 0) return x == 0 ? IncompleteGamma{kNaN, kNaN} : from_upper(0);
  if (x == 0 || a == kInfinity) return from_lower(0);
  if (x == kInfinity) return from_upper(0);
  if (a > 200 && std::fabs(x - a) < 4.5 * std::sqrt(a)) return uniform_expansion(a, x);
  if (x <= 1.1 && (x <= 0.5 ? -0.4 / std::log(x) >= a : x * 1.1 >= a)) {
    const double q = upper_of_small(a, x);
    return {gamma_factor(a, x) * lower_series(a, x), q};
  }
  if (x < a + 1) return from_lower(gamma_factor(a, x) * lower_series(a, x));
  return from_upper(a * gamma_factor(a, x) * upper_fraction(a, x));
}

namespace {

/// x^a (1 - x)^b / B(a, b), y = 1 - x.
double beta_factor(double a, double b, double x, double y) {
  const double sum = a + b;
  if (a >= kLargeOrder && b >= kLargeOrder) {
    const double by_a = (x * b - y * a) / a, by_b = -(x * b - y * a) / b;  // x (a + b) / a - 1 and the like
    // The linear terms cancel.
    const double exponent = a * log_deficit(x * (sum / a), by_a) + b * log_deficit(y * (sum / b), by_b);
    return std::exp(-exponent + stirling_rest(sum) - stirling_rest(a) - stirling_rest(b)) *
           std::sqrt(a / sum * (b / kTwoPi));
  }
  const double small = std::min(a, b), large = std::max(a, b);
  // log(Gamma(a + b) / Gamma(large)) without the difference of two large numbers.
  const double ratio = large < kLargeOrder ? log_gamma(sum) - log_gamma(large)
                                           : (large - 0.5) * std::log1p(small / large) + small * (std::log(sum) - 1) +
                                                 stirling_rest(sum) - stirling_rest(large);
  const double log_x = x > 0.5 ? std::log1p(-y) : std::log(x), log_y = y > 0.5 ? std::log1p(-x) : std::log(y);
  return std::exp(a * log_x + b * log_y + (ratio - log_gamma(small)));
}

/// The continued fraction of I_x(a, b) over its factor over a: Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  if (std::fabs(d) < kTiny) d = kTiny;
  d = 1 / d;
  double h = d;
  for (int m = 1; m < kMostSteps; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 + even * d, c = 1 + even / c;
    if (std::fabs(d) < kTiny) d = kTiny;
    if (std::fabs(c) < kTiny) c = kTiny;
    d = 1 / d;
    h *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 + odd * d, c = 1 + odd / c;
    if (std::fabs(d) < kTiny) d = kTiny;
    if (std::fabs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double step = d * c;
    h *= step;
    if (std::fabs(step - 1) < kEpsilon * 2) break;
  }
  return h;
}

}  // namespace

namespace {

/// I_x(a, b) and its complement, of which one is computed; for 0 < x < 1.
struct IncompleteBeta {
  bool is_lower;
  double value;
};
IncompleteBeta computed_beta(double a, double b, double x, bool lower) {
  const double y = 1 - x;
  if (lower) return {true, beta_factor(a, b, x, y) * beta_fraction(a, b, x) / a};
  return {false, beta_factor(b, a, y, x) * beta_fraction(b, a, y) / b};
}
bool is_below_peak(double a, double b, double x) { return x <= (a + 1) / (a + b + 2); }

}  // namespace

double incomplete_beta(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || x > 1) return kNaN;
  if (x == 0 || x == 1) return x;
  if (a == kInfinity || b == kInfinity) return a == b ? kNaN : a == kInfinity ? 0 : 1;
  const IncompleteBeta found = computed_beta(a, b, x, is_below_peak(a, b, x));
  return found.is_lower ? found.value : 1 - found.value;
}

namespace {

double zeta_of_positive(double s, double q) {
  // (2 j)! / B_2j.
  constexpr double kDivisors[] = {12.0,
                                  -720.0,
                                  30240.0,
                                  -1209600.0,
                                  47900160.0,
                                  -1.8924375803183791606e9,
                                  7.47242496e10,
                                  -2.950130727918164224e12,
                                  1.1646782814350067249e14,
                                  -4.5979787224074726105e15,
                                  1.8152105401943546773e17,
                                  -7.1661652561756670113e18};
  double sum = 0, at = q, term = 0;
  while (at < 10 || at < s) {
    term = std::pow(at, -s);
    sum += term, at += 1;
    if (term < sum * kEpsilon * 0.25) return sum;
  }
  term = std::pow(at, -s);
  sum += term * at / (s - 1) + term / 2;
  double rising = s, power = term / at;
  for (int j = 0; j < 12; ++j) {
    const double next = rising * power / kDivisors[j];
    sum += next;
    if (std::fabs(next) < sum * kEpsilon) break;
    rising *= (s + 2 * j + 1) * (s + 2 * j + 2);
    power /= at * at;
  }
  return sum;
}

}  // namespace

double hurwitz_zeta(double s, double q) {
  if (std::isnan(s) || std::isnan(q) || s < 1) return kNaN;
  if (s == 1) return kInfinity;
  if (q > 0) return q == kInfinity ? 0 : s == kInfinity ? (q < 1 ? kInfinity : q == 1 ? 1 : 0) : zeta_of_positive(s, q);
  const double whole = std::floor(q), fraction = q - whole;
  if (fraction == 0) return kInfinity;
  if (s != std::floor(s)) return kNaN;
  // Terms below zero mirrored: of n = -whole of them, (k - fraction)^-s for k = 1 ... n.
  const double below = zeta_of_positive(s, 1 - fraction) - zeta_of_positive(s, 1 - q);
  return zeta_of_positive(s, fraction) + (std::fmod(s, 2) == 0 ? below : -below);
}

namespace {

/// f'(x) by f at x +- h, x +- 2 h and x +- 3 h.
template <class F> double slope(F f, double x, double h) {
  h = (x + h) - x;
  return (45 * (f(x + h) - f(x - h)) - 9 * (f(x + 2 * h) - f(x - 2 * h)) + (f(x + 3 * h) - f(x - 3 * h))) / (60 * h);
}
/// A step for a parameter p > 0 with a function that varies as its square root and by `steepness` in its logarithm.
double step_of(double p, double steepness) {
  constexpr double kPart = 0x1p-6;
  return kPart * std::min({p / 4, std::max(1.0, std::sqrt(p)), 1 / (std::fabs(steepness) + 1e-300)});
}

}  // namespace

double incomplete_gamma_by_order(double a, double x) {
  const IncompleteGamma at = incomplete_gamma(a, x);
  if (std::isnan(at.lower) || a == 0) return kNaN;
  if (x == 0 || x == kInfinity || a == kInfinity) return 0;
  const double h = step_of(a, std::log(x / (a + 1)));
  if (at.lower < at.upper) return slope([&](double p) { return incomplete_gamma(p, x).lower; }, a, h);
  return -slope([&](double p) { return incomplete_gamma(p, x).upper; }, a, h);
}

double incomplete_beta_by_a(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || x > 1 || a == kInfinity || b == kInfinity) return kNaN;
  if (x == 0 || x == 1) return 0;
  const bool lower = is_below_peak(a, b, x);
  const double h = step_of(a, std::log(x) + std::log1p(b / (a + 1)));
  const double found = slope([&](double p) { return computed_beta(p, b, x, lower).value; }, a, h);
  return lower ? found : -found;
}
double incomplete_beta_by_b(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || x > 1 || a == kInfinity || b == kInfinity) return kNaN;
  if (x == 0 || x == 1) return 0;
  const bool lower = is_below_peak(a, b, x);
  const double h = step_of(b, std::log1p(-x) + std::log1p(a / (b + 1)));
  const double found = slope([&](double p) { return computed_beta(a, p, x, lower).value; }, b, h);
  return lower ? found : -found;
}

double hurwitz_zeta_by_exponent(double s, double q) {
  if (!(s > 1) || std::isnan(hurwitz_zeta(s, q)) || q <= 0) return kNaN;
  if (s == kInfinity || q == kInfinity) return q < 1 && q != kInfinity ? -kInfinity : 0;
  // Terms near 1 hardly vary with s, and would drown the others in their rounding.
  double sum = 0, at = q;
  for (; at < 3; at += 1) sum -= std::log(at) * std::pow(at, -s);
  return sum + slope([&](double p) { return zeta_of_positive(p, at); }, s, step_of(s - 1, std::log(at)));
}

}  // namespace fermata

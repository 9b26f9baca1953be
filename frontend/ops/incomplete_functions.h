// Special functions of one element whose loops end by value, in f64.
#pragma once

namespace fermata {

struct IncompleteGamma {
  double lower, upper;  // P and Q = 1 - P, each with its relative accuracy
};
IncompleteGamma incomplete_gamma(double a, double x);
/// I_x(a, b).
double incomplete_beta(double a, double b, double x);

// Derivatives by parameters, which have no closed form: differences of sixth order of whichever of the function and its
// complement is smaller, over steps that are short against what it varies with. Relative to the derivative of the
// logarithm they are right to about 1e-10.
double incomplete_gamma_by_order(double a, double x);  // of P(a, x)
double incomplete_beta_by_a(double a, double b, double x);
double incomplete_beta_by_b(double a, double b, double x);
double hurwitz_zeta_by_exponent(double s, double q);
/// The sum of (q + k)^-s for k = 0, 1, 2, ...
double hurwitz_zeta(double s, double q);

}  // namespace fermata

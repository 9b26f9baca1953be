// Special functions of one element whose loops end by value, in f64.
#pragma once

namespace fermata {

struct IncompleteGamma {
  double lower, upper;  // P and Q = 1 - P, each with its relative accuracy
};
IncompleteGamma incomplete_gamma(double a, double x);
/// I_x(a, b).
double incomplete_beta(double a, double b, double x);
/// The sum of (q + k)^-s for k = 0, 1, 2, ...
double hurwitz_zeta(double s, double q);

}  // namespace fermata

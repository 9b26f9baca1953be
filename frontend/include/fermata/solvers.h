// Interpolation, iterative solvers, minimization and differential equations.
//
// Solvers call user functions of tensors, which may capture other tensors. Solvers differentiate through the solution,
// not through their iterations: gradients with respect to b and captured tensors come from one more linear system (the
// implicit function theorem). Each residual that they read to decide when to stop is a sync. With a tolerance of 0 the
// linear solvers run exactly `iterations` iterations and read nothing, so they work inside compile(fn).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runtime/tensor.h"

namespace fermata {

// ---- Interpolation

/// Piecewise linear interpolation of points (xp, fp) at x. `left` and `right` are the values outside the points, by
/// default those of the first and last point.
///
/// Shapes   x any, xp ascending [N], fp [N] -> shape of x. Source NumPy, interp.
/// Errors   ShapeError FM1021 if xp and fp do not match; FM1027 for no points.
Tensor interp(const Tensor& x, const Tensor& xp, const Tensor& fp, std::optional<double> left = {},
              std::optional<double> right = {}, Location where = Location::current());

/// Solves a tridiagonal system: lower[i] x[i - 1] + diagonal[i] x[i] + upper[i] x[i + 1] = b[i]. There is no
/// pivoting, so the matrix should be diagonally dominant, as for splines. 32 systems or more are solved by Thomas's
/// algorithm on the CPU, fewer by parallel cyclic reduction.
///
/// Shapes   all broadcast to [..B, N]; lower[0] and upper[N - 1] are not read.
Tensor solve_tridiagonal(const Tensor& lower, const Tensor& diagonal, const Tensor& upper, const Tensor& b,
                         Location where = Location::current());

/// Cubic spline interpolation of points (x, y), twice continuously differentiable.
class CubicSpline {
 public:
  /// The boundary conditions. not_a_knot: the third derivative is continuous at the second and second-last point;
  /// natural: the second derivative is 0; clamped: the first derivative is 0.
  enum class Ends : std::uint8_t { not_a_knot, natural, clamped };
  /// Shapes   x ascending [N], y [N, ..A], N at least 2. Source SciPy, interpolate.CubicSpline.
  /// Errors   ShapeError FM1021.
  CubicSpline(const Tensor& x, const Tensor& y, Ends ends = Ends::not_a_knot, Location where = Location::current());
  /// Evaluates the spline, or its derivative of order 1 to 3, at positions [..T]: [..T, ..A]. Extrapolates with the
  /// outermost polynomials.
  Tensor operator()(const Tensor& at, int derivative = 0, Location where = Location::current()) const;

 private:
  Tensor x_, coefficients_[4];  // of powers of the distance to the preceding point
};

// ---- Systems of equations

using TensorToTensor = std::function<Tensor(const Tensor&)>;

struct SolverOptions {
  double tolerance = 1e-6;  // for the residual norm relative to that of b, or of f
  int iterations = 1000;    // at most
  int restart = 20;         // gmres: number of vectors kept
};
struct Solution {
  Tensor x;
  int iterations;
  double residual;  // relative; NaN if the tolerance is 0, because nothing is read
  bool converged;
};
/// Solves a(x) = b by conjugate gradients, for a linear function a with a symmetric positive definite matrix.
///
/// Errors   DTypeError unless b is f32 or f64.
Solution cg(const TensorToTensor& a, const Tensor& b, const SolverOptions& options = {},
            Location where = Location::current());
/// Solves a(x) = b for any linear function a by GMRES (Y. Saad and M. H. Schultz, 1986). Always reads its residuals.
Solution gmres(const TensorToTensor& a, const Tensor& b, const SolverOptions& options = {},
               Location where = Location::current());
/// Solves f(x) = 0 by Newton's method, halving steps until the residual falls. f returns tensors of the shape of x.
/// `tolerance` applies to the largest element of f.
Solution find_root(const TensorToTensor& f, const Tensor& start, const SolverOptions& options = {},
                   Location where = Location::current());

// ---- Minimization

struct MinimizeOptions {
  double tolerance = 1e-6;  // for the largest element of the gradient
  int iterations = 200;     // at most
  int history = 10;         // number of gradient differences kept
};
struct Minimum {
  Tensor x;
  double value, gradient;  // gradient: its largest element
  int iterations, evaluations;
  bool converged;
};
/// Finds a local minimum of f, which returns one element, by L-BFGS (J. Nocedal, 1980) with a weak Wolfe line search.
/// The result has no gradient history.
///
/// Errors   ShapeError FM1021 if f returns several elements.
Minimum minimize(const TensorToTensor& f, const Tensor& start, const MinimizeOptions& options = {},
                 Location where = Location::current());

// ---- Differential equations

struct OdeOptions {
  double relative = 1e-6, absolute = 1e-8;  // tolerances for the error of each step, elementwise
  int steps = 10000;                        // at most, between two times
};
/// Returns dy / dt as a function of time, y and parameters.
using Dynamics = std::function<Tensor(double t, const Tensor& y, std::span<const Tensor> parameters)>;
/// Integrates y from `start` at the first time and returns it at all times, by the method of J. R. Dormand and P. J.
/// Prince (1980) with adaptive steps. Gradients with respect to `start` and the parameters solve the adjoint equation
/// backward in time, which stores only the results; captured tensors get no gradients.
///
/// Shapes   start [..A], T times -> [T, ..A]. DType f32 or f64.
/// Errors   ValueError FM1417 for times that are not in order, or if a step becomes too small or there are too many
///          steps.
Tensor odeint(const Dynamics& f, const Tensor& start, const std::vector<double>& times,
              const std::vector<Tensor>& parameters = {}, const OdeOptions& options = {},
              Location where = Location::current());

}  // namespace fermata

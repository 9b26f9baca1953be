// Interpolation, iterative solvers, minimization and differential equations.
//
// Functions of yours are called with tensors and may read others that they capture. Solvers differentiate through the
// solution, not through their iterations: its gradient, by b and by everything that is captured, comes from one more
// linear system (the implicit function theorem). They read residuals to know when to end, each a sync; with a tolerance
// of 0 the linear ones make exactly so many iterations and read nothing, also inside compile(fn).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runtime/tensor.h"

namespace fermata {

// ---- Interpolation

/// The piecewise linear function through points (xp, fp) at places x; `left` and `right` before and behind all points,
/// by default the values there.
///
/// Shapes   x any, xp ascending [N], fp [N] -> that of x. Source NumPy, interp.
/// Errors   ShapeError FM1021 if xp and fp do not fit; FM1027 for no points.
Tensor interp(const Tensor& x, const Tensor& xp, const Tensor& fp, std::optional<double> left = {},
              std::optional<double> right = {}, Location where = Location::current());

/// x of a system whose matrix has three diagonals: lower[i] x[i - 1] + diagonal[i] x[i] + upper[i] x[i + 1] = b[i], by
/// parallel cyclic reduction, without pivoting: for matrices with a dominant diagonal, such as those of splines.
///
/// Shapes   all broadcast to [..B, N]; lower[0] and upper[N - 1] are not read.
Tensor solve_tridiagonal(const Tensor& lower, const Tensor& diagonal, const Tensor& upper, const Tensor& b,
                         Location where = Location::current());

/// The function through points (x, y) that is a cubic polynomial between two of them and has two derivatives.
class CubicSpline {
 public:
  /// What holds at both ends: the third derivative has no jump at the second and the last but one point, the second
  /// derivative is 0, or the first one is.
  enum class Ends : std::uint8_t { not_a_knot, natural, clamped };
  /// Shapes   x ascending [N], y [N, ..A], N at least 2. Source SciPy, interpolate.CubicSpline.
  /// Errors   ShapeError FM1021.
  CubicSpline(const Tensor& x, const Tensor& y, Ends ends = Ends::not_a_knot, Location where = Location::current());
  /// Its value, or a derivative of order 1 to 3, at places [..T]: [..T, ..A]. The outer polynomials go on.
  Tensor operator()(const Tensor& at, int derivative = 0, Location where = Location::current()) const;

 private:
  Tensor x_, coefficients_[4];  // of powers of the distance to the point before
};

// ---- Systems of equations

using TensorToTensor = std::function<Tensor(const Tensor&)>;

struct SolverOptions {
  double tolerance = 1e-6;  // of the norm of the residual over that of b, or of f
  int iterations = 1000;    // at most
  int restart = 20;         // of gmres: vectors that are kept
};
struct Solution {
  Tensor x;
  int iterations;
  double residual;  // relative; NaN where the tolerance is 0, as nothing is read
  bool converged;
};
/// x of a(x) = b, a a linear function whose matrix is symmetric and positive definite, by conjugate gradients.
///
/// Errors   DTypeError unless b is f32 or f64.
Solution cg(const TensorToTensor& a, const Tensor& b, const SolverOptions& options = {},
            Location where = Location::current());
/// x of a(x) = b for any linear function, by GMRES (Y. Saad and M. H. Schultz, 1986). It always reads its residuals.
Solution gmres(const TensorToTensor& a, const Tensor& b, const SolverOptions& options = {},
               Location where = Location::current());
/// x of f(x) = 0, f from tensors to tensors of their shape, by Newton's method with steps that are halved until the
/// residual falls. `tolerance` is of the largest element of f.
Solution find_root(const TensorToTensor& f, const Tensor& start, const SolverOptions& options = {},
                   Location where = Location::current());

// ---- Minimization

struct MinimizeOptions {
  double tolerance = 1e-6;  // of the largest element of the gradient
  int iterations = 200;     // at most
  int history = 10;         // differences of gradients that are kept
};
struct Minimum {
  Tensor x;
  double value, gradient;  // the largest element of the latter
  int iterations, evaluations;
  bool converged;
};
/// A local minimum of f, which gives one element, by L-BFGS (J. Nocedal, 1980) with a line search for the weak Wolfe
/// conditions. The result has no history.
///
/// Errors   ShapeError FM1021 if f gives several elements.
Minimum minimize(const TensorToTensor& f, const Tensor& start, const MinimizeOptions& options = {},
                 Location where = Location::current());

// ---- Differential equations

struct OdeOptions {
  double relative = 1e-6, absolute = 1e-8;  // of the error of each step, element by element
  int steps = 10000;                        // at most, between two times
};
/// dy / dt of time, y and parameters.
using Dynamics = std::function<Tensor(double t, const Tensor& y, std::span<const Tensor> parameters)>;
/// y at several times, the first of which is that of `start`, by the method of J. R. Dormand and P. J. Prince (1980)
/// with steps that follow the error. The gradients by `start` and by the parameters solve the adjoint equation backward
/// in time, and take memory for the results only; what f captures gets none.
///
/// Shapes   start [..A], T times -> [T, ..A]. DType f32 or f64.
/// Errors   ValueError FM1417 for times that are not in order, or if a step becomes too small or there are too many.
Tensor odeint(const Dynamics& f, const Tensor& start, const std::vector<double>& times,
              const std::vector<Tensor>& parameters = {}, const OdeOptions& options = {},
              Location where = Location::current());

}  // namespace fermata

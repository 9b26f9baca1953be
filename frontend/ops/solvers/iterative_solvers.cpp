// See fermata/solvers.h: conjugate gradients, GMRES and Newton's method, with gradients by the implicit function
// theorem.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "fermata/creation.h"
#include "fermata/custom_function.h"
#include "fermata/derivatives.h"
#include "fermata/device.h"
#include "fermata/linalg.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/solvers.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void check_solvable(std::string_view function, const Tensor& b, Location where) {
  require_defined(function, b, where);
  if (b.dtype() == DType::f32 || b.dtype() == DType::f64) return;
  throw DTypeError(1101,
                   format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(b.dtype())),
                                describe(b), where, "cast it to f32 or f64 first"));
}

double read(const Tensor& x, Location where) { return astype(x, DType::f64, where).item<double>(where); }

Tensor inner(const Tensor& a, const Tensor& b, Location where) {
  return sum(multiply({a, where}, b), {}, false, where);
}

/// x, with the derivatives of the solution: g becomes solve(g), the gradient by `residual`, which is 0 at the solution
/// and has the history of everything that it was computed from.
Tensor with_implicit_gradient(std::string_view function, const Tensor& x, const Tensor& residual, TensorToTensor solve,
                              Location where) {
  FunctionCall call(
      std::string(function), {residual},
      [solve = std::move(solve)](FunctionContext&, std::span<const Tensor> g) -> std::vector<Tensor> {
        return {solve(g[0])};
      },
      where);
  return call.finish({copy(x.detach(where), where)})[0];
}

/// The transpose of a linear function: its pullback anywhere.
TensorToTensor transposed(const TensorToTensor& a, const Tensor& at) {
  return [a, at](const Tensor& g) { return pullback([&](const Tensor& x) { return a(x); }, at).second(g); };
}

Solution conjugate_gradients(const TensorToTensor& a, const Tensor& b, const SolverOptions& options, Location where) {
  const vjp::LineGuard line(where);
  const bool reads = options.tolerance > 0;
  Tensor x = zeros_like(b, {}, where), r = b, p = b, rr = inner(r, r, where);
  const double size = reads ? std::sqrt(read(rr, where)) : kNaN;
  const auto relative = [&](double square) { return size == 0 ? 0 : std::sqrt(square) / size; };
  double residual = reads ? (size == 0 ? 0 : 1) : kNaN;
  int k = 0;
  for (; k < options.iterations && !(residual <= options.tolerance); ++k) {
    const Tensor ap = a(p);
    const VjpTensor curvature = inner(p, ap, where);
    const VjpTensor alpha = vjp::where(curvature == 0, 0, VjpTensor(rr) / vjp::where(curvature == 0, 1, curvature));
    x = (VjpTensor(x) + alpha * p).tensor();
    r = (VjpTensor(r) - alpha * ap).tensor();
    const VjpTensor next = inner(r, r, where), last = rr;
    p = (VjpTensor(r) + vjp::where(last == 0, 0, next / vjp::where(last == 0, 1, last)) * p).tensor();
    rr = next.tensor();
    if (reads) {
      const double square = read(rr, where);
      residual = relative(square);
      if (!std::isfinite(square)) break;
    }
  }
  return {x, k, residual, residual <= options.tolerance};
}

/// Rotations that make a Hessenberg matrix upper triangular, column by column, and what becomes of the right-hand side.
struct LeastSquaresColumns {
  explicit LeastSquaresColumns(double size) : right{size} {}
  /// `column` has one element more than there are columns with it. Gives the norm of what is left.
  double add(std::vector<double> column) {
    const std::size_t k = cosines.size();
    for (std::size_t i = 0; i < k; ++i) {
      const double upper = column[i], lower = column[i + 1];
      column[i] = cosines[i] * upper + sines[i] * lower, column[i + 1] = cosines[i] * lower - sines[i] * upper;
    }
    const double size = std::hypot(column[k], column[k + 1]);
    cosines.push_back(size == 0 ? 1 : column[k] / size), sines.push_back(size == 0 ? 0 : column[k + 1] / size);
    column[k] = size, column.pop_back();
    right.push_back(-sines[k] * right[k]), right[k] *= cosines[k];
    columns.push_back(std::move(column));
    return std::fabs(right.back());
  }
  std::vector<double> solution() const {
    std::vector<double> y(columns.size());
    for (std::size_t i = y.size(); i-- > 0;) {
      double rest = right[i];
      for (std::size_t j = i + 1; j < y.size(); ++j) rest -= columns[j][i] * y[j];
      y[i] = columns[i][i] == 0 ? 0 : rest / columns[i][i];
    }
    return y;
  }
  std::vector<std::vector<double>> columns;
  std::vector<double> cosines, sines, right;
};

Solution generalized_minimal_residuals(const TensorToTensor& a, const Tensor& b, const SolverOptions& options,
                                       Location where) {
  const vjp::LineGuard line(where);
  const Shape shape = b.shape();
  const auto flat = [&](const Tensor& t) { return reshape(t, -1, where); };
  const auto apply = [&](const Tensor& v) { return flat(a(reshape(v, shape, where))); };
  const Tensor right = flat(b);
  const double size = std::sqrt(read(inner(right, right, where), where));
  Tensor x = zeros_like(right, {}, where);
  double residual = size == 0 ? 0 : 1;
  int done = 0;
  while (done < options.iterations && !(residual <= options.tolerance)) {
    const Tensor r = (VjpTensor(right) - apply(x)).tensor();
    const double beta = std::sqrt(read(inner(r, r, where), where));
    residual = beta / size;
    if (!std::isfinite(beta) || residual <= options.tolerance) break;
    Tensor basis = expand_dims((VjpTensor(r) / beta).tensor(), 0, where);
    LeastSquaresColumns least(beta);
    for (int k = 0; k < options.restart && done < options.iterations; ++k) {
      Tensor w = apply(select(basis, 0, basis.size(0) - 1, where));
      Tensor overlaps = zeros({basis.size(0)}, b.dtype(), device(b), where);
      for (int pass = 0; pass < 2; ++pass) {  // twice is enough (L. Giraud et al., 2005)
        const Tensor along = matmul(basis, w, where);
        w = (VjpTensor(w) - matmul(transpose(basis, 0, 1, where), along, where)).tensor();
        overlaps = add({overlaps, where}, along);
      }
      const Tensor norm = reshape(sqrt({inner(w, w, where), where}), {1}, where);
      const std::vector<double> column =
          astype(concat({overlaps, norm}, 0, where), DType::f64, where).to_vector<double>(where);
      ++done;
      residual = least.add(column) / size;
      if (!(column.back() > 0) || residual <= options.tolerance) break;
      basis = concat({basis, expand_dims((VjpTensor(w) / column.back()).tensor(), 0, where)}, 0, where);
    }
    const std::vector<double> y = least.solution();
    const auto count = static_cast<std::int64_t>(y.size());
    const Tensor weights = to(astype(tensor(y, where), b.dtype(), where), device(b), where);
    x = add({x, where}, matmul(weights, slice(basis, 0, 0, count, 1, where), where));
    if (!std::isfinite(residual)) break;
  }
  return {reshape(x, shape, where), done, residual, residual <= options.tolerance};
}

}  // namespace

Solution cg(const TensorToTensor& a, const Tensor& b, const SolverOptions& options, Location where) {
  check_solvable("cg", b, where);
  Solution found = no_grad([&] { return conjugate_gradients(a, b.detach(where), options, where); });
  const Tensor residual = subtract({b, where}, a(found.x));
  found.x = with_implicit_gradient(
      "cg", found.x, residual,
      [=](const Tensor& g) { return no_grad([&] { return conjugate_gradients(a, g, options, where).x; }); }, where);
  return found;
}

Solution gmres(const TensorToTensor& a, const Tensor& b, const SolverOptions& options, Location where) {
  check_solvable("gmres", b, where);
  Solution found = no_grad([&] { return generalized_minimal_residuals(a, b.detach(where), options, where); });
  const Tensor residual = subtract({b, where}, a(found.x)), at = found.x;
  found.x = with_implicit_gradient(
      "gmres", found.x, residual,
      [=](const Tensor& g) {
        return no_grad([&] { return generalized_minimal_residuals(transposed(a, at), g, options, where).x; });
      },
      where);
  return found;
}

Solution find_root(const TensorToTensor& f, const Tensor& start, const SolverOptions& options, Location where) {
  check_solvable("find_root", start, where);
  const vjp::LineGuard line(where);
  const Shape shape = start.shape();
  const std::int64_t n = start.element_count();
  const auto of_vector = [&](const Tensor& x) {
    const Tensor y = f(reshape(x, shape, where));
    if (y.shape() != shape)
      throw ShapeError(1021, format_error(1021, "ShapeError", "find_root: f must return the shape of its argument",
                                          {{"x", to_string(start.dtype(), shape), ""},
                                           {"f(x)", to_string(y.dtype(), y.shape()), ""}},
                                          where));
    return reshape(y, {n}, where);
  };
  const auto largest = [&](const Tensor& y) {
    return n == 0 ? 0 : read(max(abs({y, where}), {}, false, where), where);
  };
  Tensor x = reshape(start.detach(where), {n}, where), y = no_grad([&] { return of_vector(x); });
  double size = largest(y);
  int k = 0;
  for (; k < options.iterations && !(size <= options.tolerance) && std::isfinite(size); ++k) {
    const Tensor jacobian = jacfwd(of_vector)(x).detach(where);
    const Tensor step = linalg::solve(jacobian, y.detach(where), where);
    double share = 1, next = kNaN;
    Tensor tried, value;
    for (int halvings = 0; halvings < 30; ++halvings, share /= 2) {
      tried = (VjpTensor(x) - VjpTensor(step) * share).tensor();
      value = no_grad([&] { return of_vector(tried); });
      next = largest(value);
      if (next < size) break;
    }
    if (!(next < size)) break;
    x = tried, y = value, size = next;
  }
  const Tensor at = x;
  const Tensor residual = negative({of_vector(x), where});
  const Tensor root = with_implicit_gradient(
      "find_root", x, residual,
      [=](const Tensor& g) {
        const Tensor jacobian =
            jacfwd([&](const Tensor& v) { return reshape(f(reshape(v, shape, where)), {n}, where); })(at);
        return linalg::solve(transpose(jacobian.detach(where), 0, 1, where), g, where);
      },
      where);
  return {reshape(root, shape, where), k, size, size <= options.tolerance};
}

}  // namespace fermata

// LU factors, and eigenvalues of any square matrix: operators of fermata/linalg.h with kernels, gradients and batching
// rules of their own.
//
// Sources of the gradients: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
// differentiation", 2008 (LU); Boeddeker et al., "On the computation of complex-valued gradients with application to
// statistically optimum beamforming", 2017 (eigenvectors).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <numeric>

#include "dispatch/matrix_routines.h"
#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/library.h"
#include "fermata/linalg.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/engine/startup.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/linalg_operands.h"
#include "frontend/ops/run_on_host.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata::linalg {
namespace {

using vjp::VjpTensor;

// ---- Kernels

std::int64_t matrices_in(const Tensor& x) {
  const std::int64_t elements = x.size(-1) * x.size(-2);
  return elements == 0 ? 0 : x.element_count() / elements;
}
double cubic(std::int64_t n) { return 200 + static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n); }

/// Calls f(T{}) with the element type of a dtype that the routines take.
template <class F> void with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::c64: return f(std::complex<float>{});
    default: return f(std::complex<double>{});
  }
}

[[noreturn]] void throw_no_lapack(std::string_view function, Location where) {
  throw UnsupportedError(
      2070, format_error(2070, "UnsupportedError", fmt::format("{}: this build has no LAPACK", function), {}, where,
                         "install liblapacke-dev and libopenblas-serial-dev, and rebuild"));
}

Tensor dense_of(const Tensor& x, Location where) { return Elements(x, where).dense() ? x : copy(x, where); }

/// Eigenvalues and, where there is room for them, eigenvectors of a dense stack.
void run_eigen(std::string_view function, const Tensor& x, const Tensor& values, const Tensor* vectors,
               Location where) {
  if (matrix_routines.eigen == nullptr) throw_no_lapack(function, where);
  const Tensor dense = dense_of(x, where);
  const Elements in(dense, where);
  const std::int64_t n = x.size(-1), count = n * n;
  with_element(x.dtype(), [&]<class T>(T) {
    using C = std::complex<decltype(std::abs(T{}))>;
    const T* const from = in.data<T>();
    C* const to = elements_to_fill<C>(values, where);
    C* const columns = vectors == nullptr ? nullptr : elements_to_fill<C>(*vectors, where);
    std::atomic<std::int64_t> failed{INT64_MAX};
    parallel_for(0, matrices_in(x), 25 * cubic(n), [&](std::int64_t b, std::int64_t e) {
      std::vector<T> a(static_cast<std::size_t>(count));
      std::vector<C> v(columns == nullptr ? 0 : static_cast<std::size_t>(count));
      for (std::int64_t k = b; k < e; ++k) {
        bool finite = true;
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            const T value = from[k * count + i * n + j];
            finite = finite && std::isfinite(std::abs(value));
            a[static_cast<std::size_t>(j * n + i)] = value;
          }
        if (!finite) {  // iterations need not end
          std::fill_n(to + k * n, n, C(NAN, NAN));
          std::fill(v.begin(), v.end(), C(NAN, NAN));
        } else if (!matrix_routines.eigen(x.dtype(), n, a.data(), to + k * n,
                                          columns == nullptr ? nullptr : v.data())) {
          for (std::int64_t lowest = failed.load(); k < lowest && !failed.compare_exchange_weak(lowest, k);) {}
        }
        for (std::int64_t i = 0; columns != nullptr && i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j) columns[k * count + i * n + j] = v[static_cast<std::size_t>(j * n + i)];
      }
    });
    if (failed.load() != INT64_MAX)
      throw ValueError(
          1392, format_error(1392, "ValueError",
                             fmt::format("{}: eigenvalues of matrix {} do not converge", function, failed.load()),
                             describe(x), where));
  });
}

Shape without_last(const Shape& shape) { return Shape(std::span<const std::int64_t>(shape).first(shape.rank() - 1u)); }

std::tuple<Tensor, Tensor> eig_cpu(const Call& call, const Tensor& x) {
  const DType dtype = complex_dtype(x.dtype());
  const Tensor values = empty(without_last(x.shape()), dtype), vectors = empty(x.shape(), dtype);
  run_eigen("eig", x, values, &vectors, call.where);
  return {values, vectors};
}
Tensor eigvals_cpu(const Call& call, const Tensor& x) {
  const Tensor values = empty(without_last(x.shape()), complex_dtype(x.dtype()));
  run_eigen("eigvals", x, values, nullptr, call.where);
  return values;
}
std::tuple<Tensor, Tensor> eig_meta(const Call&, const Tensor& x) {
  const DType dtype = complex_dtype(x.dtype());
  return {meta_tensor({dtype, without_last(x.shape())}), meta_tensor({dtype, x.shape()})};
}
Tensor eigvals_meta(const Call&, const Tensor& x) {
  return meta_tensor({complex_dtype(x.dtype()), without_last(x.shape())});
}

std::tuple<Tensor, Tensor> lu_cpu(const Call& call, const Tensor& x) {
  if (matrix_routines.lu == nullptr) throw_no_lapack("lu_factor", call.where);
  const Tensor dense = dense_of(x, call.where);
  const Elements in(dense, call.where);
  const std::int64_t m = x.size(-2), n = x.size(-1), count = m * n;
  const Tensor factors = empty(x.shape(), x.dtype()), permutation = empty(without_last(x.shape()), DType::i64);
  std::int64_t* const order = elements_to_fill<std::int64_t>(permutation, call.where);
  if (count == 0)
    for (std::int64_t i = 0; i < permutation.element_count(); ++i) order[i] = i % m;
  with_element(x.dtype(), [&]<class T>(T) {
    const T* const from = in.data<T>();
    T* const to = elements_to_fill<T>(factors, call.where);
    parallel_for(0, matrices_in(x), cubic(std::max(m, n)), [&](std::int64_t b, std::int64_t e) {
      std::vector<T> a(static_cast<std::size_t>(count));
      std::vector<std::int32_t> exchanges(static_cast<std::size_t>(std::min(m, n)));
      for (std::int64_t k = b; k < e; ++k) {
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) a[static_cast<std::size_t>(j * m + i)] = from[k * count + i * n + j];
        matrix_routines.lu(x.dtype(), m, n, a.data(), exchanges.data());
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) to[k * count + i * n + j] = a[static_cast<std::size_t>(j * m + i)];
        std::iota(order + k * m, order + (k + 1) * m, std::int64_t{0});
        for (std::size_t i = 0; i < exchanges.size(); ++i)
          std::swap(order[k * m + static_cast<std::int64_t>(i)], order[k * m + exchanges[i]]);
      }
    });
  });
  return {factors, permutation};
}
std::tuple<Tensor, Tensor> lu_meta(const Call&, const Tensor& x) {
  return {meta_tensor({x.dtype(), x.shape()}), meta_tensor({DType::i64, without_last(x.shape())})};
}

// ---- Calls

Tensor eigvals_call(const Tensor& x, Location where) {
  static const auto op = OperatorHandle::find("fermata::linalg_eigvals").typed<Tensor(const Tensor&)>();
  return op(x, where);
}
std::tuple<Tensor, Tensor> eig_call(const Tensor& x, Location where) {
  static const auto op = OperatorHandle::find("fermata::linalg_eig").typed<std::tuple<Tensor, Tensor>(const Tensor&)>();
  return op(x, where);
}
std::tuple<Tensor, Tensor> lu_call(const Tensor& x, Location where) {
  static const auto op =
      OperatorHandle::find("fermata::linalg_lu_factor").typed<std::tuple<Tensor, Tensor>(const Tensor&)>();
  return op(x, where);
}

Tensor checked_matrix(std::string_view function, const Tensor& x, bool square, Location where) {
  require_defined(function, x, where);
  const Tensor a = solvable(x, where);
  if (a.dtype() != DType::f32 && a.dtype() != DType::f64 && !is_complex(a.dtype()))
    throw DTypeError(1101,
                     format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(a.dtype())),
                                  describe(x), where, "cast it to f32 or f64 first"));
  if (a.rank() < 2)
    throw ShapeError(1015, format_error(1015, "ShapeError", fmt::format("{}: a matrix must have two axes", function),
                                        describe(x), where));
  if (square && a.size(-1) != a.size(-2))
    throw ShapeError(1090, format_error(1090, "ShapeError", fmt::format("{}: the matrix is not square", function),
                                        describe(x), where));
  return a;
}

Tensor adjoint(const Tensor& x, Location where) {
  const Tensor turned = transpose(x, -2, -1, where);
  return is_complex(turned.dtype()) ? conj({turned, where}) : turned;
}
Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t end, Location where) {
  return slice(x, -2, begin, end, 1, where);
}
Tensor columns_of(const Tensor& x, std::int64_t begin, std::int64_t end, Location where) {
  return slice(x, -1, begin, end, 1, where);
}
Tensor with_unit_diagonal(const Tensor& strictly_lower, Location where) {
  const Tensor one = to(eye(strictly_lower.size(-2), strictly_lower.size(-1), 0, strictly_lower.dtype(), where),
                        device(strictly_lower, where), where);
  return add({strictly_lower, where}, one);
}

// ---- Gradients

/// Of a square matrix A = L U: L^-H (lower part of L^H gL, and upper part of gU U^H) U^-H.
Tensor square_lu_gradient(const Tensor& l, const Tensor& u, const Tensor& gl, const Tensor& gu, Location where) {
  const Tensor inner = add({tril(matmul(adjoint(l, where), gl, where), -1, where), where},
                           triu(matmul(gu, adjoint(u, where), where), 0, where));
  const Tensor left = solve_triangular(adjoint(l, where), inner, true, true, where);
  return adjoint(solve_triangular(u, adjoint(left, where), true, false, where), where);
}

std::vector<Tensor> lu_gradient(const DerivativeArguments& d) {
  const Location where = vjp::current_line;
  if (!d.gradients[0].defined()) return {Tensor()};
  const Tensor &factors = d.results[0], &g = d.gradients[0];
  const std::int64_t m = factors.size(-2), n = factors.size(-1), k = std::min(m, n);
  const Tensor corner = columns_of(rows_of(factors, 0, k, where), 0, k, where);
  const Tensor l = with_unit_diagonal(tril(corner, -1, where), where), u = triu(corner, 0, where);
  const Tensor g_corner = columns_of(rows_of(g, 0, k, where), 0, k, where);
  Tensor gl = tril(g_corner, -1, where), gu = triu(g_corner, 0, where), rest;
  if (m > n) {  // the rows below are L2 U
    const Tensor l2 = rows_of(factors, k, m, where);
    rest = adjoint(solve_triangular(u, adjoint(rows_of(g, k, m, where), where), true, false, where), where);
    gu = subtract({gu, where}, triu(matmul(adjoint(l2, where), rest, where), 0, where));
  } else if (n > m) {  // the columns on the right are L U2
    const Tensor u2 = columns_of(factors, k, n, where);
    rest = solve_triangular(adjoint(l, where), columns_of(g, k, n, where), true, true, where);
    gl = subtract({gl, where}, tril(matmul(rest, adjoint(u2, where), where), -1, where));
  }
  Tensor whole = square_lu_gradient(l, u, gl, gu, where);
  if (rest.defined()) whole = concat({whole, rest}, m > n ? -2 : -1, where);
  const Tensor place = expand_dims(argsort(d.results[1], -1, false, where), -1, where);
  return {take_along_axis(whole, place, -2, where)};
}

Tensor real_where(const Tensor& gradient, const Tensor& x, Location where) {
  return is_complex(x.dtype()) ? gradient : real({gradient, where});
}

/// V^-H (diag(gw) + (V^H gV - V^H V diag(Re V^H gV)) / conj(w_j - w_i)) V^H.
std::vector<Tensor> eig_gradient(const DerivativeArguments& d) {
  const Location where = vjp::current_line;
  const Tensor& x = d.arguments[0].as<Tensor>();
  const Tensor &w = d.results[0], &v = d.results[1], adjoint_v = adjoint(v, where);
  const Tensor identity = to(eye(v.size(-1), {}, v.dtype(), where), device(v, where), where);
  Tensor inner;
  if (d.gradients[1].defined()) {
    const Tensor product = matmul(adjoint_v, d.gradients[1], where);
    const Tensor along = real({sum(multiply({product, where}, identity), -2, true, where), where});
    const Tensor turned = subtract({product, where}, multiply({matmul(adjoint_v, v, where), where}, along));
    const Tensor gap = subtract({expand_dims(w, -2, where), where}, expand_dims(w, -1, where));
    const Tensor on_diagonal = astype(identity, DType::boolean, where);
    const Tensor safe = fermata::where({on_diagonal, where}, identity, conj({gap, where}));
    inner = fermata::where({on_diagonal, where}, zeros_like(product, {}, where), divide({turned, where}, safe));
  }
  if (d.gradients[0].defined()) {
    const Tensor diagonal = multiply({expand_dims(d.gradients[0], -2, where), where}, identity);
    inner = inner.defined() ? add({inner, where}, diagonal) : diagonal;
  }
  if (!inner.defined()) return {Tensor()};
  return {real_where(solve(adjoint_v, matmul(inner, adjoint_v, where), where), x, where)};
}

std::vector<Tensor> eigvals_gradient(const DerivativeArguments& d) {
  const Location where = vjp::current_line;
  const Tensor& x = d.arguments[0].as<Tensor>();
  // Values come in the same order with and without vectors; those of this call are what the gradient belongs to.
  const Tensor v = std::get<1>(eig_call(x, where)), adjoint_v = adjoint(v, where);
  const Tensor scaled = multiply({expand_dims(d.gradients[0], -1, where), where}, adjoint_v);
  return {real_where(solve(adjoint_v, scaled, where), x, where)};
}

}  // namespace

GeneralEigen eig(const Tensor& x, Location where) {
  const auto [values, vectors] = eig_call(checked_matrix("eig", x, true, where), where);
  return {values, vectors};
}
Tensor eigvals(const Tensor& x, Location where) {
  return eigvals_call(checked_matrix("eigvals", x, true, where), where);
}

LuFactors lu_factor(const Tensor& x, Location where) {
  const auto [factors, permutation] = lu_call(checked_matrix("lu_factor", x, false, where), where);
  return {factors, permutation};
}

Lu lu(const Tensor& x, Location where) {
  const auto [factors, permutation] = lu_call(checked_matrix("lu", x, false, where), where);
  const std::int64_t m = factors.size(-2), n = factors.size(-1), k = std::min(m, n);
  const Tensor row = expand_dims(iota(m, 0, device(x), where), -1, where);
  const Tensor p = astype(equal({row, where}, expand_dims(permutation, -2, where)), factors.dtype(), where);
  return {p, with_unit_diagonal(tril(columns_of(factors, 0, k, where), -1, where), where),
          triu(rows_of(factors, 0, k, where), 0, where)};
}

Tensor lu_solve(const LuFactors& factors, const Tensor& b, Location where) {
  require_defined("lu_solve", factors.permutation, where);
  const Tensor lu = checked_matrix("lu_solve", factors.lu, true, where);
  require_defined("lu_solve", b, where);
  const std::vector<Tensor> both = solvable(lu, b, where);
  const bool vector = b.rank() == 1;
  const Tensor columns = vector ? expand_dims(both[1], 1, where) : both[1];
  if (b.rank() == 0 || columns.size(-2) != lu.size(-1))
    throw ShapeError(
        1004,
        format_error(1004, "ShapeError", "lu_solve: factors [.., N, N] and b [.., N, K] do not match",
                     {{"factors", to_string(lu.dtype(), lu.shape()), ""}, {"b", to_string(b.dtype(), b.shape()), ""}},
                     where));
  const Tensor ordered = take_along_axis(columns, expand_dims(factors.permutation, -1, where), -2, where);
  const Tensor middle = solve_triangular(both[0], ordered, false, true, where);
  const Tensor x = solve_triangular(both[0], middle, true, false, where);
  return vector ? squeeze(x, -1, where) : x;
}

Tensor solve_triangular_right(const Tensor& a, const Tensor& b, bool upper, bool unit, Location where) {
  require_defined("solve_triangular_right", a, where), require_defined("solve_triangular_right", b, where);
  for (const Tensor* t : {&a, &b})
    if (t->rank() < 2)
      throw ShapeError(1015, format_error(1015, "ShapeError", "solve_triangular_right: a matrix must have two axes",
                                          describe(a, b), where));
  const Tensor x = solve_triangular(transpose(a, -2, -1, where), transpose(b, -2, -1, where), !upper, unit, where);
  return transpose(x, -2, -1, where);
}

Tensor cholesky_solve(const Tensor& factor, const Tensor& b, bool upper, Location where) {
  const Tensor f = checked_matrix("cholesky_solve", factor, true, where);
  const Tensor l = upper ? adjoint(f, where) : f;
  return solve_triangular(adjoint(l, where), solve_triangular(l, b, false, false, where), true, false, where);
}

}  // namespace fermata::linalg

namespace fermata {

void register_general_factors() {
  using namespace linalg;
  Library m(Library::Kind::fragment, "fermata"), cpu(Library::Kind::implementation, "fermata", "CPU"),
      cuda(Library::Kind::implementation, "fermata", "CUDA"), meta(Library::Kind::implementation, "fermata", "Meta"),
      autograd(Library::Kind::implementation, "fermata", "Autograd"),
      batched(Library::Kind::implementation, "fermata", "Batched");
  m.def("pure linalg_eig(Tensor x) -> (Tensor, Tensor)", "Eigenvalues and eigenvectors of square matrices.");
  m.def("pure linalg_eigvals(Tensor x) -> Tensor", "Eigenvalues of square matrices.");
  m.def("pure linalg_lu_factor(Tensor x) -> (Tensor, Tensor)", "Factors L and U in one matrix, and the order of rows.");
  cpu.impl("linalg_eig", &eig_cpu).impl("linalg_eigvals", &eigvals_cpu).impl("linalg_lu_factor", &lu_cpu);
  meta.impl("linalg_eig", &eig_meta).impl("linalg_eigvals", &eigvals_meta).impl("linalg_lu_factor", &lu_meta);
  for (const char* name : {"linalg_eig", "linalg_eigvals", "linalg_lu_factor"}) cuda.impl_boxed(name, run_on_host());
  autograd.impl_boxed("linalg_eig", derivative(&eig_gradient));
  autograd.impl_boxed("linalg_eigvals", derivative(&eigvals_gradient));
  autograd.impl_boxed("linalg_lu_factor", derivative(&lu_gradient));
  // Kernels take leading axes as they come: the batch is one more.
  using Both = std::tuple<Tensor, Tensor>;
  const auto two = [](Both (*call)(const Tensor&, Location)) {
    return batching_rule([call](const BatchedArguments& b) -> std::vector<Tensor> {
      const auto [first, second] = call(b.arguments[0].as<Tensor>(), Location::current());
      return {first, second};
    });
  };
  batched.impl_boxed("linalg_eig", two(&eig_call));
  batched.impl_boxed("linalg_lu_factor", two(&lu_call));
  batched.impl_boxed("linalg_eigvals", batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
                       return {eigvals_call(b.arguments[0].as<Tensor>(), Location::current())};
                     }));
  for (Library* library : {&m, &cpu, &cuda, &meta, &autograd, &batched}) library->keep();
}

}  // namespace fermata

// L D L^H factors of symmetric and Hermitian matrices that need not be definite; see fermata/linalg.h.
//
// Bunch and Kaufman's pivoting ("Some stable methods for calculating inertia and solving symmetric linear systems",
// Math. Comp. 31, 1977): a pivot is a number on the diagonal or a block of two rows, so that no factor grows. LAPACK
// does the same in blocks, which pays where a matrix is not small; the loops here are for small ones and for builds
// without it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>
#include <type_traits>
#include <vector>

#include "dispatch/matrix_routines.h"
#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/library.h"
#include "fermata/linalg.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
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

template <class T> T conjugate(T x) { return x; }
template <class T> std::complex<T> conjugate(std::complex<T> x) { return std::conj(x); }

/// One matrix, of which the lower triangle is given; both triangles are kept, so that rows and columns are exchanged
/// alike.
template <class T> class Factorization {
 public:
  Factorization(const T* given, std::int64_t n)
      : n_(n), rest_(static_cast<std::size_t>(n * n)), order_(static_cast<std::size_t>(n)) {
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < i; ++j) at(i, j) = given[i * n + j], at(j, i) = conjugate(given[i * n + j]);
      at(i, i) = T(std::real(given[i * n + i]));  // the diagonal of a Hermitian matrix is real
    }
  }
  void run(T* l, T* d, std::int64_t* order) {
    std::fill_n(l, n_ * n_, T{}), std::fill_n(d, n_ * n_, T{});
    for (std::int64_t i = 0; i < n_; ++i) l[i * n_ + i] = T{1};
    for (std::int64_t k = 0; k < n_;) k += step(k, l, d);
    std::copy(order_.begin(), order_.end(), order);
  }

 private:
  using Real = decltype(std::abs(T{}));
  T& at(std::int64_t i, std::int64_t j) { return rest_[static_cast<std::size_t>(i * n_ + j)]; }

  /// The pivot of column k: how many rows it has, and which row comes to its last one.
  struct Pivot {
    std::int64_t rows, from;
  };
  Pivot pivot_of(std::int64_t k) {
    const Real alpha = (1 + std::sqrt(Real{17})) / 8, own = std::abs(at(k, k));
    std::int64_t largest = k;
    Real in_column = 0, in_row = 0;
    for (std::int64_t i = k + 1; i < n_; ++i)
      if (std::abs(at(i, k)) > in_column) in_column = std::abs(at(i, k)), largest = i;
    if (!(own < alpha * in_column)) return {1, k};
    for (std::int64_t j = k; j < n_; ++j)
      if (j != largest) in_row = std::max(in_row, std::abs(at(largest, j)));
    if (own * in_row >= alpha * in_column * in_column) return {1, k};
    if (std::abs(at(largest, largest)) >= alpha * in_row) return {1, largest};
    return {2, largest};
  }

  void exchange(std::int64_t a, std::int64_t b, std::int64_t k, T* l) {
    if (a == b) return;
    for (std::int64_t j = 0; j < n_; ++j) std::swap(at(a, j), at(b, j));
    for (std::int64_t i = 0; i < n_; ++i) std::swap(at(i, a), at(i, b));
    for (std::int64_t j = 0; j < k; ++j) std::swap(l[a * n_ + j], l[b * n_ + j]);
    std::swap(order_[static_cast<std::size_t>(a)], order_[static_cast<std::size_t>(b)]);
  }

  std::int64_t step(std::int64_t k, T* l, T* d) {
    const Pivot pivot = pivot_of(k);
    exchange(k + pivot.rows - 1, pivot.from, k, l);
    const T a = at(k, k);
    d[k * n_ + k] = a;
    if (pivot.rows == 1) {
      if (a == T{}) return 1;  // and so is all of its column
      for (std::int64_t i = k + 1; i < n_; ++i) l[i * n_ + k] = at(i, k) / a;
      for (std::int64_t i = k + 1; i < n_; ++i) {
        const T factor = l[i * n_ + k];
        for (std::int64_t j = k + 1; j < n_; ++j) at(i, j) -= factor * conjugate(at(j, k));
      }
      return 1;
    }
    const T b = at(k + 1, k), c = at(k + 1, k + 1), determinant = a * c - b * conjugate(b);
    d[(k + 1) * n_ + k] = b, d[k * n_ + k + 1] = conjugate(b), d[(k + 1) * n_ + k + 1] = c;
    for (std::int64_t i = k + 2; i < n_; ++i) {
      const T first = at(i, k), second = at(i, k + 1);
      l[i * n_ + k] = (first * c - second * b) / determinant;
      l[i * n_ + k + 1] = (second * a - first * conjugate(b)) / determinant;
    }
    for (std::int64_t i = k + 2; i < n_; ++i) {
      const T first = l[i * n_ + k], second = l[i * n_ + k + 1];
      for (std::int64_t j = k + 2; j < n_; ++j)
        at(i, j) -= first * conjugate(at(j, k)) + second * conjugate(at(j, k + 1));
    }
    return 2;
  }

  std::int64_t n_;
  std::vector<T> rest_;
  std::vector<std::int64_t> order_;
};

/// The same by LAPACK, whose factors have to be taken apart: what is done to the rows of one column is not done to the
/// columns left of it.
template <class T> class BlockedFactorization {
 public:
  BlockedFactorization(const T* given, std::int64_t n)
      : n_(n), columns_(static_cast<std::size_t>(n * n)), exchanges_(static_cast<std::size_t>(n)) {
    each_tile([&](std::int64_t i, std::int64_t j) { columns_[at(i, j)] = given[i * n + j]; });
    for (std::int64_t i = 0; i < n; ++i) columns_[at(i, i)] = T(std::real(columns_[at(i, i)]));
  }
  void run(T* l, T* d, std::int64_t* order) {
    matrix_routines.ldl(dtype_of<T>, n_, columns_.data(), exchanges_.data());
    std::iota(order, order + n_, std::int64_t{0});
    std::fill_n(l, n_ * n_, T{}), std::fill_n(d, n_ * n_, T{});
    each_tile([&](std::int64_t i, std::int64_t j) { l[i * n_ + j] = columns_[at(i, j)]; });
    for (std::int64_t k = 0; k < n_;) {
      const std::int32_t exchange = exchanges_[static_cast<std::size_t>(k)];
      const bool is_block = exchange < 0;
      const std::int64_t own = is_block ? k + 1 : k, other = is_block ? -1 - exchange : exchange;
      if (own != other) {
        std::swap_ranges(l + own * n_, l + own * n_ + k, l + other * n_);
        std::swap(order[own], order[other]);
      }
      d[k * n_ + k] = columns_[at(k, k)], l[k * n_ + k] = T{1};
      if (is_block) {
        const T below = columns_[at(own, k)];
        d[own * n_ + k] = below, d[k * n_ + own] = conjugate(below), d[own * n_ + own] = columns_[at(own, own)];
        l[own * n_ + k] = T{}, l[own * n_ + own] = T{1};
      }
      k = own + 1;
    }
  }

 private:
  std::size_t at(std::int64_t i, std::int64_t j) const { return static_cast<std::size_t>(j * n_ + i); }
  /// Elements of the lower triangle in squares that fit a cache: one of the two sides goes by columns.
  template <class F> void each_tile(F&& f) const {
    constexpr std::int64_t kTile = 32;
    for (std::int64_t top = 0; top < n_; top += kTile)
      for (std::int64_t left = 0; left <= top; left += kTile)
        for (std::int64_t i = top; i < std::min(top + kTile, n_); ++i)
          for (std::int64_t j = left; j < std::min(left + kTile, i + 1); ++j) f(i, j);
  }

  std::int64_t n_;
  std::vector<T> columns_;
  std::vector<std::int32_t> exchanges_;
};
/// From here on in blocks; depends on nothing but the size, so that bits do not either.
constexpr std::int64_t kLeastBlocked = 32;

using Three = std::tuple<Tensor, Tensor, Tensor>;

Shape without_last(const Shape& shape) { return Shape(std::span<const std::int64_t>(shape).first(shape.rank() - 1u)); }

Three ldl_cpu(const Call& call, const Tensor& x) {
  const Tensor dense = Elements(x, call.where).dense() ? x : copy(x, call.where);
  const Elements in(dense, call.where);
  const std::int64_t n = x.size(-1), count = n * n, matrices = count == 0 ? 0 : x.element_count() / count;
  const Tensor l = empty(x.shape(), x.dtype()), d = empty(x.shape(), x.dtype());
  const Tensor permutation = empty(without_last(x.shape()), DType::i64);
  const auto run = [&]<class T>(T) {
    const T* const from = in.data<T>();
    T *const to_l = elements_to_fill<T>(l, call.where), *const to_d = elements_to_fill<T>(d, call.where);
    std::int64_t* const order = elements_to_fill<std::int64_t>(permutation, call.where);
    const double ns = 500 + static_cast<double>(count) * static_cast<double>(n) / 2;
    parallel_for(0, matrices, ns, [&](std::int64_t b, std::int64_t e) {
      const auto factorize = [&]<class F>(std::type_identity<F>) {
        for (std::int64_t k = b; k < e; ++k)
          F(from + k * count, n).run(to_l + k * count, to_d + k * count, order + k * n);
      };
      if (matrix_routines.ldl != nullptr && n >= kLeastBlocked)
        factorize(std::type_identity<BlockedFactorization<T>>());
      else
        factorize(std::type_identity<Factorization<T>>());
    });
  };
  switch (x.dtype()) {
    case DType::f32: run(float{}); break;
    case DType::f64: run(double{}); break;
    case DType::c64: run(std::complex<float>{}); break;
    default: run(std::complex<double>{}); break;
  }
  return {l, d, permutation};
}
Three ldl_meta(const Call&, const Tensor& x) {
  return {meta_tensor({x.dtype(), x.shape()}), meta_tensor({x.dtype(), x.shape()}),
          meta_tensor({DType::i64, without_last(x.shape())})};
}
Three ldl_call(const Tensor& x, Location where) {
  static const auto op = OperatorHandle::find("fermata::linalg_ldl").typed<Three(const Tensor&)>();
  return op(x, where);
}

Tensor square(std::string_view function, const Tensor& x, Location where) {
  require_defined(function, x, where);
  const Tensor a = solvable(x, where);
  if (a.dtype() != DType::f32 && a.dtype() != DType::f64 && !is_complex(a.dtype()))
    throw DTypeError(1101,
                     format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(a.dtype())),
                                  describe(x), where, "cast it to f32 or f64 first"));
  if (a.rank() < 2 || a.size(-1) != a.size(-2))
    throw ShapeError(1090, format_error(1090, "ShapeError", fmt::format("{}: the matrix is not square", function),
                                        describe(x), where));
  return a;
}

Tensor conjugated(const Tensor& x, Location where) { return is_complex(x.dtype()) ? conj({x, where}) : x; }

/// D^-1 y, by the number or the block of two that each row is in.
Tensor solve_blocks(const Tensor& d, const Tensor& y, Location where) {
  using vjp::VjpTensor;
  const vjp::LineGuard line(where);
  const std::int64_t n = d.size(-1);
  const auto diagonal_of = [&](std::int64_t k) { return expand_dims(diagonal(d, k, where), -1, where); };
  const VjpTensor a = diagonal_of(0);
  if (n < 2) return (VjpTensor(y) / a).tensor();
  // Row i with row i + 1, and with row i - 1; 0 where they are no block.
  const Tensor below = diagonal_of(-1);
  Shape one = below.shape();
  one[one.rank() - 2u] = 1;
  const Tensor none = zeros_like(slice(below, -2, 0, 1, 1, where), {}, where);
  const Tensor next = concat({below, none}, -2, where), before = concat({none, below}, -2, where);
  const auto moved = [&](const Tensor& x, std::int64_t by) {  // the row that is `by` below
    return roll(x, {-by}, {-2}, where);
  };
  const VjpTensor begins = vjp::not_equal(next, 0), ends = vjp::not_equal(before, 0), rows = y;
  const VjpTensor other = vjp::where(begins, moved(a.tensor(), 1), moved(a.tensor(), -1));
  const VjpTensor link = vjp::where(begins, next, before);
  const VjpTensor across =
      vjp::where(begins, VjpTensor(conjugated(next, where)) * moved(y, 1), VjpTensor(before) * moved(y, -1));
  const VjpTensor in_block = vjp::logical_or(begins, ends);
  const VjpTensor determinant = a * other - link * VjpTensor(conjugated(link.tensor(), where));
  const VjpTensor of_block = (other * rows - across) / vjp::where(in_block, determinant, 1);
  return vjp::where(in_block, of_block, rows / vjp::where(in_block, 1, a)).tensor();
}

}  // namespace

Ldl ldl(const Tensor& x, Location where) {
  const auto [l, d, permutation] = ldl_call(square("ldl", x, where), where);
  return {l, d, permutation};
}

Tensor ldl_solve(const Ldl& factors, const Tensor& b, Location where) {
  const Tensor l = square("ldl_solve", factors.l, where);
  require_defined("ldl_solve", factors.d, where), require_defined("ldl_solve", factors.permutation, where);
  require_defined("ldl_solve", b, where);
  const std::vector<Tensor> both = solvable(l, b, where);
  const bool vector = b.rank() == 1;
  const Tensor columns = vector ? expand_dims(both[1], 1, where) : both[1];
  if (b.rank() == 0 || columns.size(-2) != l.size(-1))
    throw ShapeError(
        1004,
        format_error(1004, "ShapeError", "ldl_solve: factors [.., N, N] and b [.., N, K] do not match",
                     {{"l", to_string(l.dtype(), l.shape()), ""}, {"b", to_string(b.dtype(), b.shape()), ""}}, where));
  const auto ordered = [&](const Tensor& y, const Tensor& order) {
    return take_along_axis(y, expand_dims(order, -1, where), -2, where);
  };
  const Tensor y = solve_triangular(both[0], ordered(columns, factors.permutation), false, true, where);
  const Tensor upper = conjugated(transpose(both[0], -2, -1, where), where);
  const Tensor z = solve_triangular(upper, solve_blocks(factors.d, y, where), true, true, where);
  const Tensor x = ordered(z, argsort(factors.permutation, -1, false, where));
  return vector ? squeeze(x, -1, where) : x;
}

}  // namespace fermata::linalg

namespace fermata {

void register_ldl() {
  using namespace linalg;
  Library m(Library::Kind::fragment, "fermata"), cpu(Library::Kind::implementation, "fermata", "CPU"),
      cuda(Library::Kind::implementation, "fermata", "CUDA"), meta(Library::Kind::implementation, "fermata", "Meta"),
      batched(Library::Kind::implementation, "fermata", "Batched");
  m.def("pure linalg_ldl(Tensor x) -> (Tensor, Tensor, Tensor)", "L, D and the order of rows of Hermitian matrices.");
  cpu.impl("linalg_ldl", &ldl_cpu);
  meta.impl("linalg_ldl", &ldl_meta);
  cuda.impl_boxed("linalg_ldl", run_on_host());
  // The kernel takes leading axes as they come: the batch is one more.
  batched.impl_boxed("linalg_ldl", batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
                       const auto [l, d, order] = ldl_call(b.arguments[0].as<Tensor>(), Location::current());
                       return {l, d, order};
                     }));
  for (Library* library : {&m, &cpu, &cuda, &meta, &batched}) library->keep();
}

}  // namespace fermata

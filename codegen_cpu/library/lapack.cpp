// Linear algebra as `call` kernels, through LAPACK: what each op makes of one matrix of its stack. Stacks have any
// strides, of f32, f64, c64 and c128.
//
// The matrices of a stack are shared by our own threads; each call of LAPACK runs on one. (Two threading runtimes at
// once ruin both, so scripts/setup.sh installs the OpenBLAS that has none, of which one thread at a time can be a
// guest.) Results do not depend on the number of threads. Small real matrices are for small_matrices.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "dispatch/kernel_files.h"
#include "ir/error.h"

#ifdef FERMATA_LAPACK_FOUND
#include "codegen_cpu/library/lapack_calls.h"
#include "codegen_cpu/library/lapack_stack.h"
#include "ir/ops/linalg.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"
#endif

namespace fermata {
namespace {

void add_solver(Op op, std::string_view name, CallKernel call,
                std::source_location where = std::source_location::current()) {
  add_variant(op, BackendKey::cpu,
              {.name = std::string(name),
               .form = KernelForm::library,
               .dtypes = DTypeSet(DType::f32) | DType::f64 | kComplex,
               .call = call,
               .ships = Ships::with_math,
               .where = where});
}

}  // namespace

#ifdef FERMATA_LAPACK_FOUND
namespace {

using lapack::potrf, lapack::getrf, lapack::getrs, lapack::getri, lapack::trtrs, lapack::geqrf, lapack::orgqr,
    lapack::heevd, lapack::gesdd;

lapack_int size_of(std::int64_t n) { return static_cast<lapack_int>(n); }
/// What n^3 multiplications cost, roughly.
double cubic(std::int64_t n) {
  return 200 + 0.5 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
}

/// A matrix as LU with pivots; gives false where it is singular.
template <class T> struct Lu {
  using R = RealPart<T>;
  explicit Lu(std::int64_t n) : a(n, n), pivots(n) {}
  bool factorize() { return a.rows == 0 || getrf<T, R>(size_of(a.rows), a.data(), pivots.data()) == 0; }
  bool is_odd() const {
    bool odd = false;
    for (std::int64_t i = 0; i < a.rows; ++i) odd ^= pivots[i] != i + 1;
    return odd;
  }
  T determinant() const {
    T product = is_odd() ? T(-1) : T(1);
    for (std::int64_t i = 0; i < a.rows; ++i) product *= a(i, i);
    return product;
  }
  Columns<T> a;
  Scratch<lapack_int> pivots;
};

template <class T> void write(const Columns<T>& from, T* to, std::int64_t width) {
  for (std::int64_t i = 0; i < from.rows; ++i)
    for (std::int64_t j = 0; j < from.columns; ++j) to[i * width + j] = from(i, j);
}

template <class T> void solve_one(MatrixStack& stack, std::int64_t number) {
  const std::int64_t n = stack.rows(0), k = stack.columns(1);
  Lu<T> lu(n);
  const Columns<T> b(n, k);
  stack.read(0, number, lu.a), stack.read(1, number, b);
  if (!lu.factorize()) return stack.fail(number);
  if (n * k != 0) getrs<T, RealPart<T>>(size_of(n), size_of(k), lu.a.data(), lu.pivots.data(), b.data());
  write(b, stack.result<T>(number), k);
}

template <class T> void solve_triangular_one(MatrixStack& stack, std::int64_t number) {
  const std::int64_t n = stack.rows(0), k = stack.columns(1);
  const Columns<T> a(n, n), b(n, k);
  stack.read(0, number, a), stack.read(1, number, b);
  const auto op = attributes_of<ops::SolveTriangular>(stack.args());
  const bool upper = op.upper.value, unit = op.unit.value;
  if (n * k != 0 &&
      trtrs<T, RealPart<T>>(upper ? 'U' : 'L', unit ? 'U' : 'N', size_of(n), size_of(k), a.data(), b.data()) != 0)
    return stack.fail(number);
  write(b, stack.result<T>(number), k);
}

template <class T> void inv_one(MatrixStack& stack, std::int64_t number) {
  const std::int64_t n = stack.rows(0);
  Lu<T> lu(n);
  stack.read(0, number, lu.a);
  if (!lu.factorize() || (n != 0 && getri<T, RealPart<T>>(size_of(n), lu.a.data(), lu.pivots.data()) != 0))
    return stack.fail(number);
  write(lu.a, stack.result<T>(number), n);
}

template <class T> void det_one(MatrixStack& stack, std::int64_t number) {
  Lu<T> lu(stack.rows(0));
  stack.read(0, number, lu.a);
  lu.factorize();  // a pivot that vanishes is in the product
  *stack.result<T>(number) = lu.determinant();
}

template <class T> void slogdet_one(MatrixStack& stack, std::int64_t number) {
  Lu<T> lu(stack.rows(0));
  stack.read(0, number, lu.a);
  lu.factorize();
  T sign = lu.is_odd() ? T(-1) : T(1);
  RealPart<T> logarithm = 0;
  for (std::int64_t i = 0; i < lu.a.rows; ++i) {
    const RealPart<T> size = std::abs(lu.a(i, i));
    sign *= size == 0 ? T(0) : lu.a(i, i) / size;
    logarithm += std::log(size);
  }
  T* const to = stack.result<T>(number);
  to[0] = sign, to[1] = T(logarithm);
}

template <class T> void cholesky_one(MatrixStack& stack, std::int64_t number) {
  const std::int64_t n = stack.rows(0);
  const bool upper = attributes_of<ops::Cholesky>(stack.args()).upper.value;
  const Columns<T> a(n, n);
  stack.read(0, number, a);
  if (upper)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = j; i < n; ++i) a(i, j) = conjugate(a(j, i));
  if (n != 0 && potrf<T, RealPart<T>>(size_of(n), a.data()) != 0) return stack.fail(number);
  T* const to = stack.result<T>(number);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      to[i * n + j] = upper ? (j >= i ? conjugate(a(j, i)) : T(0)) : (j <= i ? a(i, j) : T(0));
}

template <class T> void qr_one(MatrixStack& stack, std::int64_t number) {
  const std::int64_t m = stack.rows(0), n = stack.columns(0), least = std::min(m, n);
  const std::int64_t k = attributes_of<ops::Qr>(stack.args()).complete.value ? m : least;
  const Columns<T> a(m, std::max(n, k));
  const Scratch<T> tau(least);
  std::fill_n(a.data(), m * a.columns, T(0));
  const TensorView& x = stack.args().inputs[0];
  if (x.element_count() != 0) {
    const Columns<T> own(m, n);
    stack.read(0, number, own);
    std::copy_n(own.data(), m * n, a.data());
    geqrf<T, RealPart<T>>(size_of(m), size_of(n), a.data(), tau.data());
  }
  T* const to = stack.result<T>(number);
  for (std::int64_t j = 0; j < k; ++j)
    for (std::int64_t i = 0; i < n; ++i) to[(m + i) * k + j] = i >= j ? a(j, i) : T(0);
  if (m * k != 0) orgqr<T, RealPart<T>>(size_of(m), size_of(k), size_of(least), a.data(), tau.data());
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < k; ++j) to[i * k + j] = a(i, j);
}

template <class T> bool all_finite(const Columns<T>& a) {
  return std::all_of(a.data(), a.data() + a.rows * a.columns, [](T x) { return std::isfinite(std::abs(x)); });
}
template <class T> void fill_nan(T* to, std::int64_t count) {
  std::fill_n(to, count, T(std::numeric_limits<RealPart<T>>::quiet_NaN()));
}

/// Eigenvalues, and eigenvectors in place of the matrix. Iterations need not end where something is not finite.
template <class T> void eigen_one(MatrixStack& stack, std::int64_t number, bool vectors) {
  using R = RealPart<T>;
  const std::int64_t n = stack.rows(0);
  if (n == 0) return;
  const Columns<T> a(n, n);
  const Scratch<R> w(n);
  stack.read(0, number, a);
  const bool finite = all_finite(a);
  if (finite && heevd<T, R>(vectors ? 'V' : 'N', size_of(n), a.data(), w.data()) != 0) return stack.fail(number);
  if (!finite) fill_nan(a.data(), n * n), fill_nan(w.data(), n);
  if (!vectors) {
    std::copy_n(w.data(), n, stack.result<R>(number));
    return;
  }
  T* const to = stack.result<T>(number);
  for (std::int64_t j = 0; j < n; ++j) to[j] = T(w[j]);
  write(a, to + n, n);
}
template <class T> void eigh_one(MatrixStack& stack, std::int64_t number) { eigen_one<T>(stack, number, true); }
template <class T> void eigvalsh_one(MatrixStack& stack, std::int64_t number) { eigen_one<T>(stack, number, false); }

/// U, the singular values and the adjoint of V: of the least width ('S'), complete ('A'), or the values only ('N').
template <class T> struct Singular {
  using R = RealPart<T>;
  Singular(std::int64_t m, std::int64_t n, char vectors)
      : rows(m),
        columns(n),
        kind(vectors),
        u(m, vectors == 'A'   ? m
             : vectors == 'S' ? std::min(m, n)
                              : 0),
        s(std::min(m, n)),
        vh(vectors == 'A'   ? n
           : vectors == 'S' ? std::min(m, n)
                            : 0,
           n) {}
  bool decompose(MatrixStack& stack, std::int64_t number) {
    const Columns<T> a(rows, columns);
    stack.read(0, number, a);
    if (rows * columns == 0) {
      for (const Columns<T>* c : {&u, &vh})
        for (std::int64_t j = 0; j < c->columns; ++j)
          for (std::int64_t i = 0; i < c->rows; ++i) (*c)(i, j) = T(i == j ? 1 : 0);
      return true;
    }
    if (!all_finite(a)) {
      fill_nan(u.data(), u.rows * u.columns), fill_nan(s.data(), s.size()), fill_nan(vh.data(), vh.rows * vh.columns);
      return true;
    }
    return gesdd<T, R>(kind, size_of(rows), size_of(columns), a.data(), s.data(), u.data(), vh.data(),
                       size_of(std::max<std::int64_t>(vh.rows, 1))) == 0;
  }
  std::int64_t rows, columns;
  char kind;
  Columns<T> u;
  Scratch<R> s;
  Columns<T> vh;
};

template <class T> void svd_one(MatrixStack& stack, std::int64_t number) {
  const std::int64_t m = stack.rows(0), n = stack.columns(0);
  const bool full = attributes_of<ops::Svd>(stack.args()).full.value;
  const std::int64_t width = full ? std::max(m, n) : std::min(m, n);
  Singular<T> parts(m, n, full ? 'A' : 'S');
  if (!parts.decompose(stack, number)) return stack.fail(number);
  T* const to = stack.result<T>(number);
  std::fill_n(to, (m + 1 + n) * width, T(0));
  write(parts.u, to, width);
  for (std::int64_t j = 0; j < parts.s.size(); ++j) to[m * width + j] = T(parts.s[j]);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < parts.vh.rows; ++j) to[(m + 1 + i) * width + j] = parts.vh(j, i);
}

template <class T> void svdvals_one(MatrixStack& stack, std::int64_t number) {
  Singular<T> parts(stack.rows(0), stack.columns(0), 'N');
  if (!parts.decompose(stack, number)) return stack.fail(number);
  std::copy_n(parts.s.data(), parts.s.size(), stack.result<RealPart<T>>(number));
}

/// out = left diag(weights) right, for columns of left and rows of right.
template <class T, class Left, class Right> void outer_sums(std::int64_t m, std::int64_t n, const Scratch<T>& weights,
                                                            T* out, const Left& left, const Right& right) {
  std::fill_n(out, m * n, T(0));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t k = 0; k < weights.size(); ++k) {
      if (weights[k] == T(0)) continue;
      const T factor = left(i, k) * weights[k];
      for (std::int64_t j = 0; j < n; ++j) out[i * n + j] += factor * right(k, j);
    }
}

/// The tolerance is operand 1: one number for each matrix.
template <class T> RealPart<T> tolerance_of(const MatrixStack& stack, std::int64_t number) {
  const TensorView& v = stack.args().inputs[1];
  std::int64_t offset = 0;
  for (unsigned axis = v.rank; axis-- > 0;) {
    offset += number % v.sizes[axis] * v.strides[axis];
    number /= v.sizes[axis];
  }
  return static_cast<const RealPart<T>*>(v.data)[offset];
}

template <class T> void pinv_one(MatrixStack& stack, std::int64_t number) {
  const std::int64_t m = stack.rows(0), n = stack.columns(0);
  Singular<T> parts(m, n, 'S');
  if (!parts.decompose(stack, number)) return stack.fail(number);
  const Scratch<T> weights(parts.s.size());
  const RealPart<T> least = parts.s.size() == 0 ? RealPart<T>(0) : parts.s[0] * tolerance_of<T>(stack, number);
  for (std::int64_t k = 0; k < weights.size(); ++k) weights[k] = parts.s[k] <= least ? T(0) : T(1) / parts.s[k];
  outer_sums(
      n, m, weights, stack.result<T>(number), [&](auto i, auto k) { return conjugate(parts.vh(k, i)); },
      [&](auto k, auto j) { return conjugate(parts.u(j, k)); });
}

/// With A = U S V^H the cofactors are det(U) det(V^H) conj(U) (products of the other singular values) conj(V^H).
template <class T> void cofactor_one(MatrixStack& stack, std::int64_t number) {
  const std::int64_t n = stack.rows(0);
  Singular<T> parts(n, n, 'A');
  if (!parts.decompose(stack, number)) return stack.fail(number);
  Lu<T> u(n), vh(n);
  std::copy_n(parts.u.data(), n * n, u.a.data()), std::copy_n(parts.vh.data(), n * n, vh.a.data());
  u.factorize(), vh.factorize();
  const Scratch<T> weights(n);
  T before = u.determinant() * vh.determinant();
  for (std::int64_t k = 0; k < n; ++k) weights[k] = before, before *= parts.s[k];
  RealPart<T> after = 1;
  for (std::int64_t k = n; k-- > 0;) weights[k] *= after, after *= parts.s[k];
  outer_sums(
      n, n, weights, stack.result<T>(number), [&](auto i, auto k) { return conjugate(parts.u(i, k)); },
      [&](auto k, auto j) { return conjugate(parts.vh(k, j)); });
}

/// How an op's result is stacked, and what is wrong where it has none.
struct Method {
  unsigned matrix_axes;
  MatrixFailure failure;
};

template <class One> void run(const CallArgs& args, const Method& method, One&& one) {
  static const bool unchecked = (LAPACKE_set_nancheck(0), true);  // NaN is a value like any other
  static_cast<void>(unchecked);
  MatrixStack stack(args, method.matrix_axes);
  if (args.outputs[0].element_count() == 0) return;
  const double cost = cubic(std::max(stack.rows(0), stack.columns(0)));
  std::optional<LoopsOnCaller> alone;
  if (lapack::is_for_one_thread()) alone.emplace();
  parallel_for(0, stack.matrices(), cost, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t i = b; i < e; ++i) one(stack, i);
  });
  stack.raise(method.failure);
}

constexpr MatrixFailure kNeverFails{}, kNoSingularValues{1392, "has singular values that do not converge"};

#define FERMATA_METHOD(op, axes, failure)                                            \
  add_solver(                                                                        \
      Op::op, "lapack", +[](const CallArgs& args) {                                  \
        const Method method{axes, failure};                                          \
        switch (args.inputs[0].dtype) {                                              \
          case DType::f32: return run(args, method, &op##_one<float>);               \
          case DType::f64: return run(args, method, &op##_one<double>);              \
          case DType::c64: return run(args, method, &op##_one<std::complex<float>>); \
          default: return run(args, method, &op##_one<std::complex<double>>);        \
        }                                                                            \
      });

}  // namespace

// clang-format off
FERMATA_KERNELS(cpu) {
  FERMATA_METHOD(cholesky, 2, kNotPositive)
  FERMATA_METHOD(solve, 2, kSingular)
  FERMATA_METHOD(solve_triangular, 2, kZeroOnDiagonal)
  FERMATA_METHOD(inv, 2, kSingular)
  FERMATA_METHOD(det, 0, kNeverFails)
  FERMATA_METHOD(slogdet, 1, kNeverFails)
  FERMATA_METHOD(cofactor, 2, kNoSingularValues)
  FERMATA_METHOD(qr, 2, kNeverFails)
  FERMATA_METHOD(eigh, 2, kNoEigenvalues)
  FERMATA_METHOD(eigvalsh, 1, kNoEigenvalues)
  FERMATA_METHOD(svd, 2, kNoSingularValues)
  FERMATA_METHOD(svdvals, 1, kNoSingularValues)
  FERMATA_METHOD(pinv, 2, kNoSingularValues)
}
// clang-format on

#else

FERMATA_KERNELS(cpu) {
  const CallKernel refuse = [](const CallArgs& args) {
    throw UnsupportedError(
        2070, format_error(2070, "UnsupportedError", fmt::format("{}: this build has no LAPACK", name(args.op)), {},
                           args.where, "install liblapacke-dev and libopenblas-serial-dev, and rebuild"));
  };
#define FERMATA_IRREGULAR(name, ...) add_solver(Op::name, "missing", refuse);
#include "ir/ops/linalg.def"
#undef FERMATA_IRREGULAR
}

#endif

}  // namespace fermata

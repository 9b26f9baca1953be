// Linear algebra: results against the reference where they are unique and against their defining equations, in every
// dtype, layout and mode; derivatives of both orders against finite differences; vmap against a loop; errors as full
// text.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/thread_pool.h"
#include "tests/error_message.h"
#include "tests/frontend/reference_call.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;

/// Skipped, which the test program reports, in a build without the library.
class LinearAlgebra : public InBothModes {
 protected:
  void SetUp() override {
    try {
      linalg::svdvals(eye(2)).sync();
    } catch (const UnsupportedError& e) { GTEST_SKIP() << e.what(); }
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, LinearAlgebra, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::c64, DType::c128};
double tolerance(DType t) { return byte_size(real_dtype(t)) == 8 ? 1e-11 : 2e-4; }

Tensor adjoint(const Tensor& x) { return conj(x.mT()); }
/// Well away from singular.
Tensor invertible(const Shape& shape, DType t, std::uint64_t seed) {
  return random_number(shape, t, seed) + eye(shape.back(), {}, real_dtype(t)) * 5;
}
Tensor hermitian(const Shape& shape, DType t, std::uint64_t seed) {
  const Tensor x = random_number(shape, t, seed);
  return (x + adjoint(x)) * 0.5 + arange(shape.back()).astype(real_dtype(t)) * eye(shape.back(), {}, real_dtype(t)) * 3;
}
Tensor positive(const Shape& shape, DType t, std::uint64_t seed) {
  const Tensor x = random_number(shape, t, seed);
  return matmul(x, adjoint(x)) + eye(shape.back(), {}, real_dtype(t)) * 2;
}
/// The same matrices in the layouts that a kernel may meet.
std::vector<Tensor> layouts(const Tensor& x) {
  return {x, copy(x.mT()).mT(), flip(copy(flip(x))), slice(copy(concat({x, x}, -1)), -1, 0, x.size(-1))};
}
void expect_equal(const Tensor& found, const Tensor& expected, DType t) {
  ASSERT_EQ(to_string(found.dtype(), found.shape()), to_string(expected.dtype(), expected.shape()));
  expect_near(found, elements(expected), tolerance(t));
}
Tensor identity_like(const Tensor& x) { return broadcast_to(eye(x.size(-1), {}, x.dtype()), x.shape()); }

TEST_P(LinearAlgebra, SystemsAndInverses) {
  for (const DType t : kTypes)
    for (const auto& [as, bs] : {std::pair<Shape, Shape>{{3, 3}, {3, 2}},
                                 {{2, 3, 3}, {3, 2}},
                                 {{2, 1, 3, 3}, {4, 3, 1}},
                                 {{0, 0}, {0, 2}},
                                 {{0, 3, 3}, {3, 1}},
                                 {{1, 1}, {1, 1}}})
      for (const Tensor& a : layouts(invertible(as, t, 1))) {
        SCOPED_TRACE(to_string(t, as));
        const Tensor b = random_number(bs, t, 2), x = linalg::solve(a, b);
        expect_near(x, reference(Op::solve, {a, b}, {t, x.shape()}), tolerance(t));
        expect_equal(matmul(a, x), broadcast_to(b, x.shape()), t);
        expect_equal(matmul(linalg::inv(a), a), identity_like(a), t);
        const Tensor l = linalg::solve_triangular(a, b), u = linalg::solve_triangular(a, b, true, true);
        expect_near(l, reference(Op::solve_triangular, {a, b}, {t, x.shape()}, {0, 0}), tolerance(t));
        expect_near(u, reference(Op::solve_triangular, {a, b}, {t, x.shape()}, {1, 1}), tolerance(t));
      }
  const Tensor a = invertible({2, 3, 3}, DType::f64, 3), b = random_f64({3}, 0, 1, true, 4);
  EXPECT_EQ(linalg::solve(a, b).shape(), (Shape{2, 3}));
  expect_equal(einsum("bij,bj->bi", {a, linalg::solve(a, b)}), broadcast_to(b, {2, 3}), DType::f64);
  EXPECT_EQ(linalg::solve(tensor({{2, 1}, {1, 3}}), tensor({3, 5})).dtype(), DType::f32);
}

TEST_P(LinearAlgebra, Determinants) {
  for (const DType t : kTypes)
    for (const Shape& shape : {Shape{3, 3}, Shape{2, 4, 4}, Shape{0, 0}, Shape{2, 1, 1}})
      for (const Tensor& a : layouts(invertible(shape, t, 5))) {
        SCOPED_TRACE(to_string(t, shape));
        const Tensor d = linalg::det(a);
        expect_near(d, reference(Op::det, {a}, {t, d.shape()}), tolerance(t));
        const auto [sign, logarithm] = linalg::slogdet(a);
        EXPECT_EQ(logarithm.dtype(), real_dtype(t));
        expect_equal(sign * exp(logarithm), d, t);
      }
  const Tensor singular = tensor({{1.0, 2.0}, {2.0, 4.0}}, DType::f64);
  EXPECT_EQ(linalg::det(singular).item<double>(), 0);
  EXPECT_EQ(linalg::slogdet(singular).sign.item<double>(), 0);
  EXPECT_EQ(linalg::slogdet(singular).logabsdet.item<double>(), -HUGE_VAL);
}

/// Small matrices are treated many at a time, and some sizes by LAPACK: the same equations hold.
TEST_P(LinearAlgebra, SmallMatricesOfAnySize) {
  for (const DType t : {DType::f32, DType::f64})
    for (std::int64_t n = 1; n <= 18; ++n)
      for (const std::int64_t count : {1, 3, 21, 70}) {
        const Tensor a = random_number({count, n, n}, t, 31 + static_cast<std::uint64_t>(n)) +
                         eye(n, {}, t) * static_cast<double>(2 + n),
                     b = random_number({count, n, 3}, t, 32), p = positive({count, n, n}, t, 33);
        SCOPED_TRACE(to_string(t, a.shape()));
        for (const Tensor& x : layouts(a)) {
          SCOPED_TRACE("a system, or an inverse");
          expect_equal(matmul(a, linalg::solve(x, b)), b, t);
          expect_equal(matmul(linalg::inv(x), a), identity_like(a), t);
        }
        const Tensor lower = linalg::cholesky(p), upper = linalg::cholesky(p, true);
        expect_equal(matmul(lower, lower.mT()), p, t);
        EXPECT_TRUE(all(equal(upper, lower.mT())).item<bool>());
        EXPECT_TRUE(all(equal(triu(lower, 1), zeros({}))).item<bool>());
        const Tensor one = eye(n, {}, t), above = triu(upper, 1) * 0.1;
        expect_equal(matmul(lower, linalg::solve_triangular(lower + above, b)), b, t);  // what lies above is not read
        expect_equal(matmul(above + one, linalg::solve_triangular(above + one * 7, b, true, true)), b, t);
        const auto [sign, logarithm] = linalg::slogdet(a);
        expect_equal(linalg::det(a) / exp(logarithm), sign, t);
      }
}

/// A matrix gets the bits that it gets alone, wherever it is in a stack.
TEST_P(LinearAlgebra, BitsDoNotDependOnTheStack) {
  for (const DType t : {DType::f32, DType::f64})
    for (const std::int64_t n : {1, 2, 3, 4, 7, 12, 16, 29, 32}) {
      constexpr std::int64_t kCount = 37;
      const Tensor a = random_number({kCount, n, n}, t, 41), b = random_number({kCount, n, 2}, t, 42),
                   p = positive({kCount, n, n}, t, 43);
      const auto same = [](const Tensor& one, const Tensor& other) { return all(equal(one, other)).item<bool>(); };
      const Tensor x = linalg::solve(a, b), inverse = linalg::inv(a), det = linalg::det(a), l = linalg::cholesky(p);
      const auto [w, v] = linalg::eigh(n <= 12 ? p : slice(slice(p, 1, 0, 12), 2, 0, 12));
      for (const std::int64_t i : {0, 1, 15, 16, 30, 36}) {
        const auto at = [&](const Tensor& of) { return slice(of, 0, i, i + 1); };
        EXPECT_TRUE(same(at(x), linalg::solve(at(a), at(b)))) << n << " " << i;
        EXPECT_TRUE(same(at(inverse), linalg::inv(at(a)))) << n << " " << i;
        EXPECT_TRUE(same(at(det), linalg::det(at(a)))) << n << " " << i;
        EXPECT_TRUE(same(at(l), linalg::cholesky(at(p)))) << n << " " << i;
        const auto [one_w, one_v] = linalg::eigh(at(n <= 12 ? p : slice(slice(p, 1, 0, 12), 2, 0, 12)));
        EXPECT_TRUE(same(at(w), one_w) && same(at(v), one_v)) << n << " " << i;
      }
    }
}

/// Sizes of Jacobi's method and one above; equal, zero and negative eigenvalues; numbers whose squares overflow or
/// vanish; some matrices that are not finite; a triangle that must not be read.
TEST_P(LinearAlgebra, EigenvaluesOfSmallMatrices) {
  for (const DType t : {DType::f32, DType::f64})
    for (std::int64_t n = 1; n <= 13; ++n)
      for (const double scale :
           t == DType::f32 ? std::vector{1e-40, 1e-36, 1.0, 1e36} : std::vector{1e-311, 1e-300, 1.0, 1e305}) {
        SCOPED_TRACE(::testing::Message() << name(t) << " " << n << " " << scale);
        const Tensor one = eye(n, {}, t), x = random_number({20, n, n}, t, 61), y = random_number({20, n, 1}, t, 62),
                     rest = triu(full({n, n}, 0.5, t), 1);
        const Tensor a =
            concat({(x + x.mT()) * 0.5, matmul(y, y.mT()), one.reshape({1, n, n}), zeros({1, n, n}, t)}, 0).sync();
        const auto [scaled, v] = linalg::eigh(tril(a * scale) + (n <= 12 ? rest * scale : triu(a * scale, 1)));
        const Tensor w = scaled / scale;
        expect_equal(matmul(a, v), v * expand_dims(w, -2), t);
        expect_equal(matmul(v.mT(), v), identity_like(v), t);
        EXPECT_TRUE(all(less_equal(slice(w, 1, 0, n - 1), slice(w, 1, 1))).item<bool>());
        expect_equal(linalg::eigvalsh(a * scale) / scale, w, t);
        expect_near(slice(w, 0, 40), elements(concat({ones({1, n}, t), zeros({1, n}, t)}, 0)),
                    n <= 12 ? 0 : tolerance(t));
        const Tensor odd = linalg::eigvalsh(where(arange(42).reshape({42, 1, 1}) == 7, NAN, a));
        EXPECT_TRUE(all(equal(isnan(odd), arange(42).reshape({42, 1}) == 7)).item<bool>());
      }
}

/// Threads share the matrices of a stack: each has the bits that it has alone.
TEST_P(LinearAlgebra, StacksOnSeveralThreads) {
  const int threads = thread_count();
  set_thread_count(4);
  constexpr std::int64_t kCount = 24, kSize = 40;
  for (const DType t : {DType::f32, DType::f64}) {
    const Tensor a = random_number({kCount, kSize, kSize}, t, 51) + eye(kSize, {}, t) * 4,
                 b = random_number({kCount, kSize, 3}, t, 52), p = positive({kCount, kSize, kSize}, t, 53);
    const std::pair<const char*, std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>> routines[] = {
        {"solve", [](auto& x, auto& y, auto&) { return linalg::solve(x, y); }},
        {"inv", [](auto& x, auto&, auto&) { return linalg::inv(x); }},
        {"cholesky", [](auto&, auto&, auto& z) { return linalg::cholesky(z); }},
        {"qr", [](auto& x, auto&, auto&) { return linalg::qr(x).r; }},
        {"svdvals", [](auto& x, auto&, auto&) { return linalg::svdvals(x); }},
        {"eigvalsh", [](auto&, auto&, auto& z) { return linalg::eigvalsh(z); }},
        {"eigvals", [](auto& x, auto&, auto&) { return real(linalg::eigvals(x)); }},
        {"lu", [](auto& x, auto&, auto&) { return linalg::lu(x).u; }},
        {"ldl", [](auto&, auto&, auto& z) { return linalg::ldl(z).l; }}};
    for (const auto& [name, routine] : routines) {
      const Tensor all_of_them = routine(a, b, p).sync();
      for (std::int64_t i = 0; i < kCount; ++i) {
        const auto at = [&](const Tensor& x) { return copy(slice(x, 0, i, i + 1)); };
        EXPECT_TRUE(all(equal(at(all_of_them), routine(at(a), at(b), at(p)))).item<bool>()) << name << " " << i;
      }
    }
  }
  set_thread_count(threads);
}

/// Zeros where the first pivot would be, in some of the matrices; a singular matrix has the determinant zero.
TEST_P(LinearAlgebra, SmallMatricesExchangeRows) {
  for (const DType t : {DType::f32, DType::f64}) {
    const Tensor turn = flip(eye(3, {}, t), {0}),
                 mixed = concat({stack({turn, eye(3, {}, t)}, 0), random_number({20, 3, 3}, t, 7)}, 0);
    expect_equal(matmul(mixed, linalg::inv(mixed)), identity_like(mixed), t);
    expect_near(slice(linalg::det(mixed), 0, 0, 2), {-1, 1}, 0);
    const Tensor singular = concat({random_number({5, 3, 3}, t, 8), zeros({1, 3, 3}, t), ones({1, 3, 3}, t)}, 0);
    expect_near(slice(linalg::det(singular), 0, 5, 7), {0, 0}, 0);
    EXPECT_THROW(linalg::inv(singular).sync(), ValueError);
  }
}

TEST_P(LinearAlgebra, Factors) {
  for (const DType t : kTypes) {
    for (const Shape& shape : {Shape{3, 3}, Shape{2, 4, 4}, Shape{0, 0}, Shape{1, 1}}) {
      SCOPED_TRACE(to_string(t, shape));
      for (const Tensor& a : layouts(positive(shape, t, 6))) {
        const Tensor l = linalg::cholesky(a), u = linalg::cholesky(a, true);
        expect_near(l, reference(Op::cholesky, {a}, {t, shape}, {0}), tolerance(t));
        expect_equal(u, adjoint(l), t);
        expect_equal(matmul(l, adjoint(l)), a, t);
      }
      for (const Tensor& a : layouts(hermitian(shape, t, 7))) {
        const auto [w, v] = linalg::eigh(a);
        EXPECT_EQ(w.dtype(), real_dtype(t));
        expect_equal(matmul(a, v), v * expand_dims(w, -2), t);
        expect_equal(matmul(adjoint(v), v), identity_like(v), t);
        expect_equal(linalg::eigvalsh(a), w, t);
        expect_near(w, reference(Op::eigvalsh, {a}, {w.dtype(), w.shape()}), tolerance(t));
      }
    }
    for (const Shape& shape :
         {Shape{3, 3}, Shape{5, 3}, Shape{3, 5}, Shape{2, 4, 2}, Shape{3, 0}, Shape{0, 2}, Shape{1, 4}})
      for (const Tensor& a : layouts(random_number(shape, t, 8))) {
        SCOPED_TRACE(to_string(t, shape));
        const std::int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
        for (const char* mode : {"reduced", "complete"}) {
          const auto [q, r] = linalg::qr(a, mode);
          EXPECT_EQ(q.size(-1), std::string_view(mode) == "complete" ? m : k);
          EXPECT_EQ(r.size(-1), n);
          if (k != 0) expect_equal(matmul(q, r), a, t);
          expect_equal(matmul(adjoint(q), q), identity_like(matmul(adjoint(q), q)), t);
          expect_equal(triu(r), r, t);
        }
        for (const bool full : {false, true}) {
          const auto [u, s, vh] = linalg::svd(a, full);
          EXPECT_EQ(s.dtype(), real_dtype(t));
          EXPECT_EQ(u.size(-1), full ? m : k);
          EXPECT_EQ(vh.size(-2), full ? n : k);
          expect_equal(matmul(adjoint(u), u), identity_like(matmul(adjoint(u), u)), t);
          expect_equal(matmul(vh, adjoint(vh)), identity_like(matmul(vh, adjoint(vh))), t);
          if (k != 0) { expect_equal(matmul(slice(u, -1, 0, k) * expand_dims(s, -2), slice(vh, -2, 0, k)), a, t); }
          expect_equal(linalg::svdvals(a), s, t);
        }
        if (k != 0) {
          const Tensor s = linalg::svdvals(a), p = linalg::pinv(a);
          expect_near(s, reference(Op::svdvals, {a}, {s.dtype(), s.shape()}), tolerance(t));
          expect_equal(matmul(matmul(a, p), a), a, t);
          expect_equal(matmul(matmul(p, a), p), p, t);
          expect_equal(matmul(a, p), adjoint(matmul(a, p)), t);
        }
        EXPECT_EQ(linalg::pinv(a).size(-1), m);
        EXPECT_EQ(linalg::matrix_rank(a).to_vector<std::int64_t>()[0], k);
      }
  }
  const Tensor flat = tensor({{1.0, 2.0}, {2.0, 4.0}, {3.0, 6.0}}, DType::f64);
  EXPECT_EQ(linalg::matrix_rank(flat).item<std::int64_t>(), 1);
  EXPECT_EQ(linalg::matrix_rank(zeros({2, 2})).item<std::int64_t>(), 0);
  const Tensor nan = full({2, 2}, NAN);
  EXPECT_TRUE(std::isnan(linalg::svdvals(nan).to_vector<float>()[0]));
  EXPECT_TRUE(std::isnan(linalg::eigh(nan).eigenvalues.to_vector<float>()[0]));
}

TEST_P(LinearAlgebra, IndefiniteFactors) {
  const auto adjoint = [](const Tensor& x) {
    return is_complex(x.dtype()) ? conj(transpose(x, -2, -1)) : transpose(x, -2, -1);
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::c128})
    // Those of 32 and more are factorized in blocks, if there is LAPACK.
    for (const Shape& shape :
         {Shape{1, 1}, Shape{2, 2}, Shape{9, 9}, Shape{2, 3, 6, 6}, Shape{31, 31}, Shape{2, 33, 33}, Shape{100, 100}})
      for (const bool without_diagonal : {false, true}) {
        Tensor a = random_f64(shape, 0.1, 1, true, 3);
        if (is_complex(dtype)) a = complex(a, random_f64(shape, 0.1, 1, true, 4));
        a = a + adjoint(a);
        if (without_diagonal) a = where(eye(shape.back()) == 1, 0, a);  // every pivot is a block of two
        if (without_diagonal && shape.back() == 1) continue;
        a = astype(a, dtype).sync();
        const linalg::Ldl f = linalg::ldl(a);
        const auto close = [&](const Tensor& x, const Tensor& y) {
          EXPECT_LT(max(abs(x - y)).item<double>(),
                    (dtype == DType::f32 ? 2e-5 : 1e-12) * std::max<double>(1, static_cast<double>(shape.back()) / 5))
              << name(dtype) << " " << to_string(shape);
        };
        const Tensor rows = take_along_axis(a, expand_dims(f.permutation, -1), -2);
        close(matmul(matmul(f.l, f.d), adjoint(f.l)), take_along_axis(rows, expand_dims(f.permutation, -2), -1));
        close(tril(f.l), f.l);
        EXPECT_LT(max(abs(f.l)).item<double>(), 20);
        EXPECT_EQ(max(abs(abs(diagonal(f.l)) - 1)).item<double>(), 0);
        close(tril(triu(f.d, -1), 1), f.d);
        Shape columns = shape;
        columns[columns.rank() - 1u] = 2;
        const Tensor x = astype(random_f64(columns, 0.1, 1, true, 5), dtype);
        if (shape.back() % 2 == 0 || !without_diagonal) {  // not singular
          EXPECT_LT(max(abs(linalg::ldl_solve(f, matmul(a, x)) - x)).item<double>(), dtype == DType::f32 ? 1e-2 : 1e-9);
        }
      }
  // The lower triangle is what counts, in blocks too.
  const Tensor big = random_f64({40, 40}, 0.1, 1, true, 7), even = tril(big) + transpose(tril(big, -1), 0, 1);
  EXPECT_EQ(linalg::ldl(big).l.to_vector<double>(), linalg::ldl(even).l.to_vector<double>());
  EXPECT_EQ(linalg::ldl(zeros({40, 40})).d.to_vector<float>(), std::vector<float>(1600, 0));
  const Tensor a = random_f64({4, 5, 5}, 0.1, 1, true, 6), symmetric = (a + transpose(a, 1, 2)).sync();
  const auto d = [](const Tensor& x) { return linalg::ldl(x).d; };
  EXPECT_EQ(vmap(d)(symmetric).to_vector<double>(), d(symmetric).to_vector<double>());
  EXPECT_EQ(linalg::ldl(zeros({3, 3})).d.to_vector<float>(), std::vector<float>(9, 0));
  EXPECT_THROW(linalg::ldl(zeros({3, 2})), ShapeError);
}

TEST_P(LinearAlgebra, LeastSquares) {
  for (const DType t : kTypes) {
    const Tensor a = random_number({2, 5, 3}, t, 9), b = random_number({2, 5, 2}, t, 10);
    const auto [x, residuals, rank, s] = linalg::lstsq(a, b);
    const Tensor rest = matmul(a, x) - b;
    for (const Complex z : elements(matmul(adjoint(a), rest))) EXPECT_LE(std::abs(z), 100 * tolerance(t));
    expect_equal(residuals, sum(square(abs(rest)), -2), t);
    EXPECT_EQ(rank.to_vector<int>(), (std::vector<int>{3, 3}));
    EXPECT_EQ(linalg::lstsq(a[0], select(b[0], 1, 0)).solution.shape(), Shape{3});
  }
}

TEST_P(LinearAlgebra, Norms) {
  const double inf = HUGE_VAL;
  const Tensor x = tensor({{3.0, -4.0}, {0.0, 12.0}}, DType::f64);
  const auto value = [](const Tensor& norm) { return norm.item<double>(); };
  EXPECT_DOUBLE_EQ(value(linalg::vector_norm(x)), 13);
  EXPECT_DOUBLE_EQ(value(linalg::vector_norm(x, {}, false, 1)), 19);
  EXPECT_DOUBLE_EQ(value(linalg::vector_norm(x, {}, false, inf)), 12);
  EXPECT_DOUBLE_EQ(value(linalg::vector_norm(x, {}, false, -inf)), 0);
  EXPECT_DOUBLE_EQ(value(linalg::vector_norm(x, {}, false, 0)), 3);
  EXPECT_DOUBLE_EQ(value(linalg::vector_norm(x, {}, false, 3)), std::cbrt(27 + 64 + 1728));
  EXPECT_EQ(linalg::vector_norm(x, 1, true).shape(), (Shape{2, 1}));
  EXPECT_DOUBLE_EQ(value(linalg::matrix_norm(x)), 13);
  EXPECT_DOUBLE_EQ(value(linalg::matrix_norm(x, false, 1)), 16);
  EXPECT_DOUBLE_EQ(value(linalg::matrix_norm(x, false, -1)), 3);
  EXPECT_DOUBLE_EQ(value(linalg::matrix_norm(x, false, inf)), 12);
  EXPECT_DOUBLE_EQ(value(linalg::matrix_norm(x, false, -inf)), 7);
  const std::vector<double> s = linalg::svdvals(x).to_vector<double>();
  EXPECT_DOUBLE_EQ(value(linalg::matrix_norm(x, false, 2)), s[0]);
  EXPECT_DOUBLE_EQ(value(linalg::matrix_norm(x, false, -2)), s[1]);
  EXPECT_DOUBLE_EQ(value(linalg::matrix_norm(x, false, "nuc")), s[0] + s[1]);
  EXPECT_EQ(linalg::matrix_norm(stack({x, x}), true, "nuc").shape(), (Shape{2, 1, 1}));
  EXPECT_EQ(linalg::vector_norm(x.astype(DType::f16)).dtype(), DType::f16);
  const Tensor z = complex(x, x);
  EXPECT_NEAR(value(linalg::vector_norm(z)), 13 * std::sqrt(2.0), 1e-12);
  EXPECT_EQ(linalg::matrix_norm(z).dtype(), DType::f64);
  EXPECT_EQ(value(linalg::vector_norm(zeros({0}, DType::f64))), 0);
}

TEST_P(LinearAlgebra, ProductsAndViews) {
  const Tensor x = reshape(arange(12.0), {3, 4});
  EXPECT_EQ(linalg::diagonal(x).to_vector<int>(), (std::vector<int>{0, 5, 10}));
  EXPECT_EQ(linalg::diagonal(x, 2).to_vector<int>(), (std::vector<int>{2, 7}));
  EXPECT_EQ(linalg::diagonal(x, -1).to_vector<int>(), (std::vector<int>{4, 9}));
  EXPECT_EQ(linalg::diagonal(x, 9).shape(), Shape{0});
  EXPECT_EQ(linalg::diagonal(x, -9).shape(), Shape{0});
  EXPECT_EQ(linalg::diagonal(x.mT(), 1).to_vector<int>(), (std::vector<int>{4, 9}));
  EXPECT_EQ(linalg::diagonal(stack({x, x + 1}), 0).to_vector<int>(), (std::vector<int>{0, 5, 10, 1, 6, 11}));
  EXPECT_EQ(linalg::diagonal(zeros({0, 3})).shape(), Shape{0});
  EXPECT_EQ(linalg::trace(x).item<int>(), 15);
  EXPECT_EQ(linalg::trace(tensor({{1, 2}, {3, 4}}), 1).item<int>(), 2);
  EXPECT_EQ(linalg::trace(x, 0, DType::f64).dtype(), DType::f64);
  EXPECT_EQ(linalg::outer(tensor({1, 2}), tensor({3, 4, 5})).to_vector<int>(), (std::vector<int>{3, 4, 5, 6, 8, 10}));
  EXPECT_EQ(linalg::cross(tensor({1, 2, 3}), tensor({4, 5, 6})).to_vector<int>(), (std::vector<int>{-3, 6, -3}));
  EXPECT_EQ(linalg::cross(ones({3, 2}), ones({3, 1}) * 2, 0).shape(), (Shape{3, 2}));
  EXPECT_EQ(linalg::kron(tensor({{1, 2}, {3, 4}}), tensor({1, 10})).to_vector<int>(),
            (std::vector<int>{1, 10, 2, 20, 3, 30, 4, 40}));
  const Tensor p = tensor({{1.0, 1.0}, {0.0, 1.0}}, DType::f64);
  EXPECT_EQ(linalg::matrix_power(p, 5).to_vector<int>(), (std::vector<int>{1, 5, 0, 1}));
  EXPECT_EQ(linalg::matrix_power(p, 0).to_vector<int>(), (std::vector<int>{1, 0, 0, 1}));
  expect_equal(linalg::matrix_power(p, -2), tensor({{1.0, -2.0}, {0.0, 1.0}}, DType::f64), DType::f64);
  EXPECT_EQ(linalg::matrix_power(tensor({{1, 1}, {0, 1}}), 3).dtype(), DType::i64);
  EXPECT_EQ(matrix_transpose(x).shape(), (Shape{4, 3}));
  EXPECT_EQ(tensordot(x, x.mT(), 1).to_vector<double>(), matmul(x, x.mT()).to_vector<double>());
  EXPECT_EQ(tensordot(x, x, {0, 1}, {0, 1}).item<int>(), 506);
  EXPECT_EQ(tensordot(x, x, 0).shape(), (Shape{3, 4, 3, 4}));
  EXPECT_EQ(tensordot(ones({2, 3, 4}), ones({4, 3, 5}), {-1, 1}, {0, 1}).shape(), (Shape{2, 5}));
  EXPECT_EQ(vecdot(x, x).to_vector<int>(), (std::vector<int>{14, 126, 366}));
  EXPECT_EQ(vecdot(x, ones({3, 1}), 0).to_vector<int>(), (std::vector<int>{12, 15, 18, 21}));
  EXPECT_EQ(vecdot(tensor({1, 2}).astype(DType::i8), tensor({3, 4}).astype(DType::i8)).dtype(), DType::i8);
  const Tensor z = random_complex({3}, DType::c128, 1);
  expect_near(vecdot(z, z), elements(sum(square(abs(z))).astype(DType::c128)), 1e-14);
}

void check(const char* what, DType t, const std::function<Tensor(const std::vector<Tensor>&)>& f,
           const std::vector<Tensor>& xs) {
  SCOPED_TRACE(name(t));
  if (is_complex(t))
    check_both_orders(what, of_parts(f), parts_of(xs));
  else
    check_both_orders(what, f, xs);
}

TEST_P(LinearAlgebra, Derivatives) {
  using Tensors = std::vector<Tensor>;
  for (const DType t : {DType::f64, DType::c128}) {
    const Tensor a = invertible({2, 2}, t, 11), b = random_number({2, 2}, t, 12),
                 stacked = invertible({2, 2, 2}, t, 13);
    check("solve", t, [](const Tensors& x) { return linalg::solve(x[0], x[1]); }, {a, b});
    check("solve, broadcast", t, [](const Tensors& x) { return linalg::solve(x[0], x[1]); },
          {stacked, select(b, 0, 0)});
    for (const bool upper : {false, true})
      for (const bool unit : {false, true})
        check("solve_triangular", t,
              [&](const Tensors& x) { return linalg::solve_triangular(x[0], x[1], upper, unit); }, {a, b});
    check("inv", t, [](const Tensors& x) { return linalg::inv(x[0]); }, {stacked});
    check("det", t, [](const Tensors& x) { return linalg::det(x[0]); }, {stacked});
    check("slogdet", t,
          [](const Tensors& x) {
            const auto [sign, size] = linalg::slogdet(x[0]);
            return sign * size;
          },
          {a});
    const auto symmetric = [](const Tensor& x) { return (x + adjoint(x)) * 0.5; };
    const Tensor p = positive({2, 2}, t, 14), h = hermitian({2, 2}, t, 15);
    check("cholesky", t, [&](const Tensors& x) { return linalg::cholesky(symmetric(x[0])); }, {p});
    check("upper cholesky", t, [&](const Tensors& x) { return linalg::cholesky(symmetric(x[0]), true); }, {p});
    check("eigvalsh", t, [&](const Tensors& x) { return linalg::eigvalsh(symmetric(x[0])); }, {h});
    // What does not depend on the phases of vectors.
    check("eigh", t,
          [&](const Tensors& x) {
            const auto [w, v] = linalg::eigh(symmetric(x[0]));
            return matmul(v * exp(expand_dims(w, -2) * 0.3), adjoint(v)) + square(abs(v));
          },
          {h});
    for (const Shape& shape : {Shape{2, 2}, Shape{3, 2}, Shape{2, 3}}) {
      const Tensor x =
          random_number(shape, t, 16) + eye(shape[0], shape[1], real_dtype(t)) *
                                            arange(1.0, 1.0 + static_cast<double>(shape[1])).astype(real_dtype(t));
      check("qr", t,
            [](const Tensors& in) {
              const auto [q, r] = linalg::qr(in[0]);
              return concat({square(q), r.mT()}, 0);
            },
            {x});
      check("svdvals", t, [](const Tensors& in) { return linalg::svdvals(in[0]); }, {x});
      check("svd", t,
            [](const Tensors& in) {
              const auto [u, s, vh] = linalg::svd(in[0], false);
              return sum(matmul(u * square(expand_dims(s, -2)), vh)) + sum(square(abs(u)) * s) +
                     sum(square(abs(vh)) * expand_dims(s, -1));
            },
            {x});
      check("pinv", t, [](const Tensors& in) { return linalg::pinv(in[0]); }, {x});
      check("matrix_norm", t,
            [](const Tensors& in) { return linalg::matrix_norm(in[0], false, "nuc") + linalg::matrix_norm(in[0]); },
            {x});
    }
    check("lstsq", t, [](const Tensors& x) { return linalg::lstsq(x[0], x[1]).solution; },
          {random_number({3, 2}, t, 17), random_number({3}, t, 18)});
    check("diagonal", t, [](const Tensors& x) { return square(linalg::diagonal(x[0], 1)); },
          {random_number({2, 3}, t, 19)});
    check("matrix_power", t, [](const Tensors& x) { return linalg::matrix_power(x[0], -2); }, {a});
    check("kron", t, [](const Tensors& x) { return linalg::kron(x[0], x[1]); }, {b, select(b, 0, 0)});
    check("cross", t, [](const Tensors& x) { return linalg::cross(x[0], square(x[0])); },
          {random_number({2, 3}, t, 20)});
  }
  for (const double ord : {1.0, 2.0, 3.0, HUGE_VAL})
    check_both_orders("vector_norm", [&](const Inputs& x) { return linalg::vector_norm(x[0], 1, false, ord); },
                      {random_f64({2, 3}, 0.5, 2, true, 21)});
  // A determinant has a derivative where there is no inverse.
  check_gradients("det of a singular matrix", [](const Inputs& x) { return linalg::det(x[0]); },
                  {tensor({{1.0, 2.0, 3.0}, {2.0, 4.0, 6.0}, {1.0, 0.0, 1.0}}, DType::f64)});
  const Tensor zero = zeros({3}, DType::f64).requires_grad(true);
  linalg::vector_norm(zero).backward();
  EXPECT_EQ(zero.grad().to_vector<int>(), (std::vector<int>{0, 0, 0}));
}

TEST_P(LinearAlgebra, Vmap) {
  const auto batch = [](const Shape& shape, int axis, std::uint64_t seed, bool is_positive = false) {
    BatchOperand o{{}, axis};
    for (std::uint64_t i = 0; i < (axis == kShared ? 1u : 3u); ++i)
      o.elements.push_back(is_positive ? positive(shape, DType::f64, seed + i)
                                       : invertible(shape, DType::f64, seed + i));
    return o;
  };
  const Shape square_shape{3, 3}, stacked{2, 3, 3};
  for (const Shape& shape : {square_shape, stacked})
    for (const int axis : {0, 1, -1}) {
      const auto check_one = [&](const char* what, const Function& f) {
        check_vmap(what, f, {batch(shape, axis, 30, true)}, 3, 0, 1e-10);
      };
      check_one("inv", [](const Inputs& x) { return linalg::inv(x[0]); });
      check_one("det", [](const Inputs& x) { return linalg::det(x[0]); });
      check_one("slogdet", [](const Inputs& x) { return linalg::slogdet(x[0]).logabsdet; });
      check_one("cholesky", [](const Inputs& x) { return linalg::cholesky(x[0]); });
      check_one("qr", [](const Inputs& x) { return linalg::qr(x[0]).r; });
      check_one("eigh", [](const Inputs& x) { return linalg::eigh(x[0]).eigenvalues; });
      check_one("eigvalsh", [](const Inputs& x) { return linalg::eigvalsh(x[0]); });
      check_one("svd", [](const Inputs& x) { return linalg::svd(x[0]).s; });
      check_one("svdvals", [](const Inputs& x) { return linalg::svdvals(x[0]); });
      check_one("pinv", [](const Inputs& x) { return linalg::pinv(x[0]); });
      check_one("matrix_norm", [](const Inputs& x) { return linalg::matrix_norm(x[0], false, 2); });
      check_one("gradient of det",
                [](const Inputs& x) { return grad([](const Tensor& a) { return sum(linalg::det(a)); })(x[0]); });
    }
  for (const auto& [a, b] : {std::pair<Shape, Shape>{{3, 3}, {3, 2}}, {{2, 3, 3}, {3, 2}}, {{3, 3}, {2, 3, 2}}})
    for (const int left : {0, -1, kShared})
      for (const int right : {0, 1, kShared}) {
        if (left == kShared && right == kShared) continue;
        BatchOperand rhs{{}, right};
        for (std::uint64_t i = 0; i < (right == kShared ? 1u : 3u); ++i)
          rhs.elements.push_back(random_f64(b, 0.5, 2, true, 50 + i));
        check_vmap(
            "solve", [](const Inputs& x) { return linalg::solve(x[0], x[1]); }, {batch(a, left, 40), rhs}, 3, 0, 1e-10);
        check_vmap(
            "solve_triangular", [](const Inputs& x) { return linalg::solve_triangular(x[0], x[1], true); },
            {batch(a, left, 40), rhs}, 3, 0, 1e-10);
      }
}

TEST_P(LinearAlgebra, CompiledFunctionsReplay) {
  auto f = compile([](const Tensor& a, const Tensor& b) { return sum(linalg::solve(a, b * 2) + 1, 0); });
  for (std::int64_t n = 1; n < 5; ++n) {
    const Tensor a = invertible({n, n}, DType::f64, 60), b = random_f64({n, 2}, 0.5, 2, true, 61);
    expect_near(f(a, b), elements(sum(linalg::solve(a, b * 2) + 1, 0)), 1e-12);
  }
}

TEST_P(LinearAlgebra, ErrorsOfValues) {
  const Tensor good = eye(2, {}, DType::f64), bad = tensor({{1.0, 2.0}, {2.0, 4.0}}, DType::f64);
  const Tensor batch = stack({good, bad, bad});
  EXPECT_EQ(message<ValueError>([&] { linalg::inv(batch).sync(); }),
            "FM1390 ValueError: inv: matrix [1] is singular\n  x    f64[3, 2, 2]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { linalg::inv(bad).sync(); }),
            "FM1390 ValueError: inv: the matrix is singular\n  x    f64[2, 2]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { linalg::solve(bad, ones({2}, DType::f64)).sync(); }),
            "FM1390 ValueError: solve: the matrix is singular\n  a    f64[2, 2]\n  b    f64[2, 1]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              linalg::solve_triangular(zeros({2, 2}), ones({2})).sync();
            }),
            "FM1390 ValueError: solve_triangular: the matrix is singular: there is a zero on its diagonal\n"
            "  a    f32[2, 2]\n  b    f32[2, 1]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              linalg::cholesky(stack({good, -good})).sync();
            }),
            "FM1391 ValueError: cholesky: matrix [1] is not positive definite\n  x    f64[2, 2, 2]\n  at   HERE");
  EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2}));
}

TEST_P(LinearAlgebra, ErrorsOfCalls) {
  EXPECT_EQ(message<ShapeError>([] {
              linalg::inv(ones({2, 3}));
            }),
            "FM1090 ShapeError: inv: the matrix is not square\n  x    f32[2, 3]   2 rows, 3 columns\n  at   HERE");
  EXPECT_EQ(
      message<ShapeError>([] { linalg::det(ones({3})); }),
      "FM1015 ShapeError: det: a matrix must have two axes\n  x    f32[3]   should have at least two axes\n  at   HERE");
  EXPECT_EQ(
      message<DTypeError>([] {
        linalg::inv(ones({2, 2}, DType::f16));
      }),
      "FM1101 DTypeError: inv: does not take f16\n  x    f16[2, 2]\n  at   HERE\n  hint cast it to f32 or f64 first");
  EXPECT_EQ(message<ShapeError>([] {
              linalg::solve(ones({2, 2}), ones({3, 1}));
            }),
            "FM1004 ShapeError: solve: contracted sizes differ (2 and 3)\n"
            "  a    f32[2, 2]   2 columns\n  b    f32[3, 1]   3 rows\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] {
              linalg::qr(ones({2, 2}), "raw");
            }),
            "FM1393 ValueError: qr: unknown mode \"raw\"\n  x    f32[2, 2]\n  at   HERE\n"
            "  hint \"reduced\" or \"complete\"");
  EXPECT_EQ(message<ValueError>([] {
              linalg::matrix_norm(ones({2, 2}), false, 3);
            }),
            "FM1396 ValueError: matrix_norm: unsupported order 3\n  x    f32[2, 2]\n  at   HERE\n"
            "  hint use \"fro\", \"nuc\", 1, -1, 2, -2, inf or -inf");
  EXPECT_EQ(message<ShapeError>([] { linalg::cross(ones({2}), ones({2})); }),
            "FM1096 ShapeError: cross: vectors must have three elements\n  lhs  f32[2]\n  rhs  f32[2]\n  at   HERE");
  EXPECT_EQ(message<ShapeError>([] { tensordot(ones({2}), ones({2}), 2); }),
            "FM1097 ShapeError: tensordot: fewer than 2 axes\n  lhs  f32[2]\n  rhs  f32[2]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { tensordot(ones({2}), ones({2}), -1); }),
            "FM1399 ValueError: tensordot: -1 axes\n  lhs  f32[2]\n  rhs  f32[2]\n  at   HERE");
  const Tensor x = ones({3, 2}, DType::f64).requires_grad(true);
  EXPECT_EQ(message<GradientError>([&] { sum(linalg::qr(x, "complete").q).backward(); }),
            "FM1771 GradientError: qr: the complete form is not differentiable\n"
            "  x    f64[3, 2]\n  at   HERE\n  hint use the reduced form");
  EXPECT_EQ(message<GradientError>([&] { linalg::det(complex(matmul(x.mT(), x), 1)).backward(); }),
            "FM1770 GradientError: backward: a complex result needs a seed\n  y    c128[]\n  at   HERE\n"
            "  hint differentiate a real function of it, such as abs() or real()");
}

}  // namespace
}  // namespace fermata

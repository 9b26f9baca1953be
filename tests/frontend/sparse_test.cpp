// Sparse tensors against dense ones, in both modes; gradients against those of the dense computation; errors as text.
#include "fermata/sparse.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <random>

#include "fermata/fermata.h"
#include "fermata/library.h"
#include "runtime/thread_pool.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using fermata::testing::message;

class Sparse : public ::testing::TestWithParam<Mode> {
 protected:
  ~Sparse() override { EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2})); }
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Sparse, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

using Doubles = std::vector<double>;
using Integers = std::vector<std::int64_t>;

void expect_same(const Tensor& got, const Tensor& wanted) {
  EXPECT_EQ(got.dtype(), wanted.dtype());
  ASSERT_EQ(got.shape(), wanted.shape());
  EXPECT_EQ(got.to_vector<double>(), wanted.to_vector<double>());
}
/// The same up to the order of additions.
void expect_near(const Tensor& got, const Tensor& wanted, double tolerance) {
  EXPECT_EQ(got.dtype(), wanted.dtype());
  ASSERT_EQ(got.shape(), wanted.shape());
  const Doubles g = got.to_vector<double>(), w = wanted.to_vector<double>();
  for (std::size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(g[i], w[i], tolerance * (1 + std::fabs(w[i]))) << i;
}

/// A dense tensor of small whole numbers, most of them zero, so that sums are exact.
Tensor mostly_zeros(const Shape& shape, DType dtype, std::uint64_t seed, double density = 0.2) {
  Generator g(seed);
  const Tensor kept = bernoulli(density, shape, g);
  const Tensor numbers = randint(1, 9, shape, DType::i32, g);
  return astype(where(kept, numbers, 0), dtype).sync();
}
/// COO with positions out of order, some of them several times.
Tensor shuffled_coo(const Shape& shape, std::int64_t count, DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Integers indices;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis)
    for (std::int64_t i = 0; i < count; ++i)
      indices.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape[axis])));
  Generator g(seed);
  return sparse_coo(tensor(indices, {shape.rank(), count}), astype(randint(1, 9, {count}, DType::i32, g), dtype),
                    shape);
}
/// What a COO tensor says, by a loop.
Tensor dense_of(const Tensor& coo) {
  const Integers indices = stored_indices(coo).to_vector<std::int64_t>();
  const Doubles values = stored_values(coo).to_vector<double>();
  const Shape strides = dense_strides(coo.shape());
  Doubles all(static_cast<std::size_t>(coo.element_count()), 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < strides.rank(); ++axis) at += indices[axis * values.size() + i] * strides[axis];
    all[static_cast<std::size_t>(at)] += values[i];
  }
  return astype(tensor(all, coo.shape()), coo.dtype());
}

constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::i32, DType::u8, DType::f16, DType::bf16};

TEST_P(Sparse, ConvertsBackAndForth) {
  for (const DType dtype : kDTypes) {
    const Tensor x = mostly_zeros({7, 11}, dtype, 1);
    const Tensor coo = to_sparse_coo(x), csr = to_sparse_csr(x);
    EXPECT_TRUE(is_sparse(coo) && is_sparse(csr) && !is_sparse(x));
    EXPECT_TRUE(is_coalesced(coo) && is_coalesced(csr));
    EXPECT_EQ(stored_count(coo), sum(astype(x != 0, DType::i64)).item<std::int64_t>());
    for (const Tensor& s : {coo, csr, to_sparse_csr(coo), to_sparse_coo(csr)}) {
      EXPECT_EQ(s.shape(), x.shape());
      expect_same(to_dense(s), x);
    }
    expect_same(to_dense(x), x);
  }
  const Tensor cube = mostly_zeros({3, 4, 5}, DType::f32, 2);
  expect_same(to_dense(to_sparse_coo(cube)), cube);
  const Tensor truth = mostly_zeros({5, 6}, DType::i32, 3) != 0;
  expect_same(to_dense(to_sparse_csr(truth)), truth);
  expect_same(to_dense(to_sparse_csr(zeros({4, 3}))), zeros({4, 3}));
  expect_same(to_dense(to_sparse_csr(zeros({0, 3}))), zeros({0, 3}));
  EXPECT_EQ(to_dense(to_sparse_coo(tensor(2.5))).item<float>(), 2.5f);
}

TEST_P(Sparse, BuildsFromParts) {
  const Tensor csr = sparse_csr(tensor({0, 2, 2, 3}), tensor({2, 0, 1}), tensor({1.0, 2.0, 3.0}), {3, 4});
  EXPECT_EQ(to_dense(csr).to_vector<double>(), (Doubles{2, 0, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0}));
  EXPECT_FALSE(is_coalesced(csr));  // columns of the first row are out of order
  EXPECT_EQ(stored_columns(coalesce(csr)).to_vector<std::int64_t>(), (Integers{0, 2, 1}));
  EXPECT_EQ(stored_row_offsets(coalesce(csr)).to_vector<std::int64_t>(), (Integers{0, 2, 2, 3}));
  EXPECT_EQ(stored_values(coalesce(csr)).to_vector<double>(), (Doubles{2, 1, 3}));
}

TEST_P(Sparse, Coalesces) {
  for (const DType dtype : kDTypes) {
    const Tensor x = shuffled_coo({4, 5}, 30, dtype, 4);
    EXPECT_FALSE(is_coalesced(x));
    const Tensor c = coalesce(x);
    EXPECT_TRUE(is_coalesced(c));
    EXPECT_LE(stored_count(c), 20);
    expect_same(to_dense(x), dense_of(x));
    expect_same(to_dense(c), dense_of(x));
    expect_same(to_dense(to_sparse_csr(x)), dense_of(x));
    const Integers i = stored_indices(c).to_vector<std::int64_t>();
    const auto n = static_cast<std::size_t>(stored_count(c));
    for (std::size_t k = 1; k < n; ++k) EXPECT_LT(i[k - 1] * 5 + i[n + k - 1], i[k] * 5 + i[n + k]);
  }
}

TEST_P(Sparse, AddsAndMultiplies) {
  for (const DType dtype : {DType::f32, DType::f64, DType::i64}) {
    const Tensor a = shuffled_coo({5, 6}, 12, dtype, 1), b = shuffled_coo({5, 6}, 9, dtype, 2);
    const Tensor da = dense_of(a), db = dense_of(b), d = mostly_zeros({5, 6}, dtype, 3, 0.7), row = d[2];
    expect_same(to_dense(a + b), da + db);
    expect_same(to_dense(a - b), da - db);
    expect_same(to_dense(a * b), da * db);
    expect_same(to_dense(maximum(a, b)), maximum(da, db));
    expect_same(to_dense(to_sparse_csr(a) + to_sparse_csr(b)), da + db);
    expect_same(to_dense(to_sparse_csr(a) * b), da * db);
    expect_same(d + a, d + da);
    expect_same(a + d, d + da);
    expect_same(d - a, d - da);
    expect_same(a - d, da - d);
    expect_same(row + a, row + da);
    expect_same(d + to_sparse_csr(a), d + da);
    expect_same(to_dense(a * d), da * d);
    expect_same(to_dense(row * a), row * da);
    expect_same(to_dense(to_sparse_csr(a) * row), da * row);
    expect_same(to_dense(a * 3), da * 3);
    expect_same(to_dense(2 * to_sparse_csr(a)), 2 * da);
    expect_same(to_dense(a / 2), da / 2);
    expect_same(to_dense(a > 4), da > 4);
    expect_same(to_dense(pow(a, 2)), pow(da, 2));
    EXPECT_TRUE(is_sparse(a + b) && is_sparse(a * d) && !is_sparse(a + d));
  }
  expect_same(to_dense(shuffled_coo({5}, 3, DType::i32, 5) + shuffled_coo({5}, 3, DType::f32, 6)),
              dense_of(shuffled_coo({5}, 3, DType::i32, 5)) + dense_of(shuffled_coo({5}, 3, DType::f32, 6)));
}

TEST_P(Sparse, KeepsZerosWhereTheFormulaDoes) {
  const Tensor a = shuffled_coo({5, 6}, 14, DType::f32, 1), d = dense_of(a);
  for (const auto f : {&sqrt, &abs, &relu, &tanh, &sin, &negative, &sign, &expm1, &round, &square, &isnan}) {
    expect_same(to_dense(f(a)), f(d));
    expect_same(to_dense(f(to_sparse_csr(a))), f(d));
  }
  EXPECT_EQ(sqrt(shuffled_coo({4}, 3, DType::i32, 1)).dtype(), DType::f32);
  EXPECT_EQ(a.astype(DType::f64).dtype(), DType::f64);
  expect_same(to_dense(copy(a)), d);
}

TEST_P(Sparse, SumsAndTransposes) {
  for (const DType dtype : {DType::f32, DType::i32}) {
    const Tensor a = shuffled_coo({3, 4, 5}, 25, dtype, 1), d = dense_of(a);
    expect_same(sum(a), sum(d));
    expect_same(sum(a, 1), sum(d, 1));
    expect_same(sum(a, {0, 2}, true), sum(d, {0, 2}, true));
    expect_same(to_dense(permute(a, {2, 0, 1})), permute(d, {2, 0, 1}));
    const Tensor m = shuffled_coo({6, 4}, 10, dtype, 2);
    expect_same(to_dense(transpose(m)), transpose(dense_of(m)));
    expect_same(to_dense(transpose(to_sparse_csr(m))), transpose(dense_of(m)));
    expect_same(sum(to_sparse_csr(m), 0), sum(dense_of(m), 0));
  }
}

TEST_P(Sparse, Products) {
  for (const DType dtype : kDTypes)
    for (const std::int64_t columns : {1, 3, 16, 77, 200}) {
      const Tensor s = mostly_zeros({19, 13}, dtype, 1), b = mostly_zeros({13, columns}, dtype, 2, 0.8);
      const Tensor wanted = matmul(s, b);
      expect_same(matmul(to_sparse_csr(s), b), wanted);
      expect_same(matmul(to_sparse_coo(s), b), wanted);
      expect_same(matmul(to_sparse_csr(s), transpose(copy(transpose(b)))), wanted);
      expect_same(matmul(transpose(b), to_sparse_csr(transpose(s))), transpose(wanted));
      expect_same(linear(transpose(b), to_sparse_csr(s)), transpose(wanted));
    }
  const Tensor messy = shuffled_coo({8, 9}, 40, DType::f64, 3);
  const Tensor v = mostly_zeros({9}, DType::f64, 4, 0.9), w = mostly_zeros({8}, DType::f64, 5, 0.9);
  expect_same(matmul(messy, v), matmul(dense_of(messy), v));
  expect_same(matmul(w, messy), matmul(w, dense_of(messy)));
  expect_same(matmul(to_sparse_csr(messy), v), matmul(dense_of(messy), v));
  expect_same(matmul(to_sparse_csr(zeros({4, 0})), zeros({0, 3})), zeros({4, 3}));
  // f32 times f64 promotes.
  EXPECT_EQ(matmul(messy, astype(v, DType::f32)).dtype(), DType::f64);
}

TEST_P(Sparse, ProductsDoNotDependOnThreads) {
  Generator g(1);
  const Tensor s = to_sparse_csr(where(bernoulli(0.05, {700, 600}, g), normal({700, 600}, 0, 1, DType::f32, g), 0.0f));
  const Tensor b = normal({600, 130}, 0, 1, DType::f32, g).sync();
  const int threads = thread_count();
  set_thread_count(1);
  const Tensor one = matmul(s, b).sync(), transposed = matmul(transpose(b), transpose(s)).sync(),
               v = matmul(s, b.slice(1, 0, 1)).sync();
  set_thread_count(4);
  expect_same(matmul(s, b), one);
  expect_same(matmul(transpose(b), transpose(s)), transposed);
  expect_same(matmul(s, b.slice(1, 0, 1)), v);
  set_thread_count(threads);
  expect_near(one, matmul(to_dense(s), b), 1e-5);
  expect_near(transposed, transpose(one), 1e-5);
}

TEST_P(Sparse, GradientsReachTheValues) {
  const Integers rows{0, 0, 1, 3, 3}, cols{1, 2, 0, 2, 2};
  Integers both = rows;
  both.insert(both.end(), cols.begin(), cols.end());
  const Tensor at = tensor(both, {2, 5});
  for (const bool csr : {false, true}) {
    Generator g(1);
    Tensor v = normal({5}, 0, 1, DType::f64, g), b = normal({3, 4}, 0, 1, DType::f64, g);
    const Tensor weight = normal({4, 4}, 0, 1, DType::f64, g);
    const auto gradients_of = [&](auto&& f) {
      const Tensor x = v.detach().requires_grad(true), y = b.detach().requires_grad(true);
      Tensor s = sparse_coo(at, x, {4, 3});
      if (csr) s = to_sparse_csr(s);
      return gradients(sum(f(s, y) * weight), {x, y});
    };
    const auto compare = [&](auto&& f) {
      const auto sparse = gradients_of(f);
      const auto dense = gradients_of([&](const Tensor& s, const Tensor& y) { return f(to_dense(s), y); });
      expect_near(sparse[0], dense[0], 1e-12);
      expect_near(sparse[1], dense[1], 1e-12);
    };
    compare([](const Tensor& s, const Tensor& y) { return matmul(s, y); });
    compare([](const Tensor& s, const Tensor& y) { return matmul(transpose(y), transpose(s)); });
    compare([](const Tensor& s, const Tensor& y) { return matmul(tanh(s) * 2, y); });
    compare([](const Tensor& s, const Tensor& y) { return matmul(s + s * transpose(y), y); });
    compare([](const Tensor& s, const Tensor& y) { return matmul(s * 3 - transpose(y), y); });
    compare(
        [](const Tensor& s, const Tensor& y) { return matmul(expand_dims(sum(s, 1), 1), sum(y, 0, true)) + sum(s); });
  }
}

TEST_P(Sparse, SecondDerivatives) {
  const auto f = [](const Tensor& v) {
    const Tensor s = sparse_csr(tensor({0, 1, 3}), tensor({1, 0, 1}), v, {2, 2});
    return sum(square(matmul(s, matmul(s, tensor({{1., 2.}, {3., 4.}}, DType::f64)))));
  };
  const auto g = [&](const Tensor& v) { return sum(grad(f)(v) * tensor({1., 2., 3.}, DType::f64)); };
  const Tensor at = tensor({0.5, -1.5, 2.0}, DType::f64);
  const Doubles exact = grad(g)(at).to_vector<double>();
  for (std::size_t i = 0; i < 3; ++i) {
    const auto moved = [&](double by) {
      Doubles v{0.5, -1.5, 2.0};
      v[i] += by;
      return g(tensor(v)).item<double>();
    };
    EXPECT_NEAR(exact[i], (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-4 * (1 + std::fabs(exact[i])));
  }
}

TEST_P(Sparse, InCompiledFunctions) {
  const Tensor s = to_sparse_csr(mostly_zeros({6, 5}, DType::f32, 1));
  auto product = compile([&](const Tensor& x) { return relu(matmul(s, x) - 3); });
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Tensor x = mostly_zeros({5, 4}, DType::f32, i, 0.9);
    expect_same(product(x), relu(matmul(to_dense(s), x) - 3));
  }
  // Indices that are an argument cannot be read; a product does without.
  auto build = compile([](const Tensor& at, const Tensor& v, const Tensor& x) {
    return matmul(sparse_coo(at, v, {3, 5}, false), x);
  });
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Tensor coo = shuffled_coo({3, 5}, 6, DType::f32, i), x = mostly_zeros({5, 2}, DType::f32, i, 0.9);
    expect_same(build(stored_indices(coo), stored_values(coo), x), matmul(dense_of(coo), x));
  }
}

TEST_P(Sparse, Prints) {
  EXPECT_EQ(to_string(to_sparse_coo(tensor({{0., 2.5}, {1., 0.}}))),
            "sparse_coo(f32[2, 2],\n"
            "  indices=tensor([[0, 1],\n"
            "                  [1, 0]], i64),\n"
            "  values=tensor([2.5, 1.0], f32))");
  EXPECT_EQ(to_string(to_sparse_csr(tensor({{0., 2.5}, {1., 0.}}))),
            "sparse_csr(f32[2, 2],\n"
            "  row_offsets=tensor([0, 1, 2], i64),\n"
            "  columns=tensor([1, 0], i64),\n"
            "  values=tensor([2.5, 1.0], f32))");
}

TEST_P(Sparse, OpsThatFillZerosSaySo) {
  const Tensor s = to_sparse_coo(tensor({{0., 2.5}, {1., 0.}}));
  EXPECT_EQ(message<UnsupportedError>([&] { exp(s); }),
            "FM2021 UnsupportedError: exp: the zeros of a sparse tensor would become 1\n"
            "  x    f32[2, 2]   sparse\n"
            "  at   HERE\n"
            "  hint to_dense() returns a dense tensor, which every op accepts");
  EXPECT_EQ(message<UnsupportedError>([&] { s + 1; }),
            "FM2021 UnsupportedError: add: the zeros of a sparse tensor would become 1\n"
            "  x    f32[2, 2]   sparse\n"
            "  at   HERE\n"
            "  hint to_dense() returns a dense tensor, which every op accepts");
  EXPECT_EQ(message<UnsupportedError>([&] { static_cast<void>(s == s); }),
            "FM2021 UnsupportedError: equal: the zeros of a sparse tensor would become 1\n"
            "  lhs  f32[2, 2]   sparse\n"
            "  rhs  f32[2, 2]   sparse\n"
            "  at   HERE\n"
            "  hint to_dense() returns a dense tensor, which every op accepts");
  EXPECT_THROW(log(s), UnsupportedError);
  EXPECT_THROW(1 / s, UnsupportedError);
  EXPECT_EQ(message<UnsupportedError>([&] { softmax(s); }),
            "FM2001 UnsupportedError: softmax: no kernel for SparseCOO/CPU\n"
            "  x    f32[2, 2]   sparse\n"
            "  at   HERE\n"
            "  hint to_dense() returns a dense tensor, which every op accepts");
  EXPECT_EQ(message<UnsupportedError>([&] { s.to_vector<float>(); }),
            "FM2005 UnsupportedError: to_vector: a sparse tensor has no elements to read\n"
            "  x    f32[2, 2]\n"
            "  at   HERE\n"
            "  hint to_dense() returns all elements, stored_values() the stored ones");
  EXPECT_EQ(message<UnsupportedError>([&] { Elements{s}; }),
            "FM2005 UnsupportedError: elements: a sparse tensor has no elements to read\n"
            "  x    f32[2, 2]\n"
            "  at   HERE\n"
            "  hint to_dense() returns all elements, stored_values() the stored ones");
  EXPECT_EQ(message<UnsupportedError>([&] { matmul(s, s); }),
            "FM2020 UnsupportedError: matmul: products of two sparse matrices have no kernel\n"
            "  lhs  f32[2, 2]   sparse\n"
            "  rhs  f32[2, 2]   sparse\n"
            "  at   HERE\n"
            "  hint to_dense() returns a dense tensor, which every op accepts");
}

TEST_P(Sparse, WrongParts) {
  const Tensor v = ones({3});
  EXPECT_EQ(message<IndexError>([&] {
              sparse_coo(tensor({{0, 1, 2}, {0, 4, 1}}), v, {3, 4});
            }),
            "FM1250 IndexError: sparse tensor: index 4 is out of range for axis 1 of size 4\n"
            "  x    f32[3, 4]   3 values\n"
            "  at   HERE");
  EXPECT_EQ(message<IndexError>([&] {
              sparse_csr(tensor({0, 2, 1, 3}), tensor({0, 1, 2}), v, {3, 4});
            }),
            "FM1250 IndexError: sparse tensor: row offsets do not increase from 0 to 3\n"
            "  x    f32[3, 4]   3 values\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              sparse_coo(tensor({{0, 1}, {0, 1}}), v, {3, 4});
            }),
            "FM1050 ShapeError: sparse_coo: 2 positions for 3 values\n"
            "  indices i64[2, 2]\n"
            "  values  f32[3]\n"
            "  at      HERE");
  EXPECT_EQ(message<DTypeError>([&] {
              sparse_coo(ones({2, 3}), v, {3, 4});
            }),
            "FM1152 DTypeError: sparse_coo: indices must be integers, not f32\n"
            "  indices f32[2, 3]\n"
            "  values  f32[3]\n"
            "  at      HERE");
  EXPECT_EQ(message<DTypeError>([&] { coalesce(v); }),
            "FM1152 DTypeError: coalesce: not a sparse tensor\n"
            "  x    f32[3]\n"
            "  at   HERE\n"
            "  hint convert with to_sparse_coo() or to_sparse_csr()");
  EXPECT_EQ(message<ShapeError>([&] {
              to_sparse_coo(ones({2, 3})) + to_sparse_coo(ones({3}));
            }),
            "FM1051 ShapeError: add: sparse tensors do not broadcast\n"
            "  lhs  f32[2, 3]   sparse\n"
            "  rhs  f32[3]      sparse\n"
            "  at   HERE\n"
            "  hint to_dense() returns a dense tensor, which every op accepts");
  Tensor s = to_sparse_coo(ones({2, 3}));
  EXPECT_EQ(message<GradientError>([&] { s.requires_grad(true); }),
            "FM1717 GradientError: requires_grad: a sparse tensor has the gradients of its components\n"
            "  x    f32[2, 3]\n"
            "  at   HERE\n"
            "  hint mark the tensors that it is built from");
}

TEST_P(Sparse, BrokenPatternsDoNoHarm) {
  const Tensor broken = sparse_csr(tensor({0, 1, 2}), tensor({0, 700}), ones({2}), {2, 3}, false);
  EXPECT_EQ(message<IndexError>([&] {
              matmul(broken, ones({3, 2})).sync();
            }).substr(0, 56),
            "FM1250 IndexError: csr_matmul: a column is not in [0, 3)");
  EXPECT_THROW(to_dense(broken), IndexError);
  EXPECT_THROW(matmul(sparse_coo(tensor({{0}, {5}}), ones({1}), {2, 3}, false), ones({3, 2})), IndexError);
}

}  // namespace
}  // namespace fermata

// The kernels of sparse products, for every instruction set that this machine has, against loops over the entries.
#include "codegen_cpu/irregular/csr.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "ir/error.h"
#include "ir/shape.h"

namespace fermata {
namespace {

/// A matrix of `rows` rows, some of them empty, with columns in no order and some of them twice.
struct Pattern {
  std::int64_t rows, width;
  std::vector<std::int64_t> data{0};
  Pattern(std::int64_t r, std::int64_t w, std::int64_t most, std::mt19937_64& random) : rows(r), width(w) {
    std::vector<std::int64_t> columns;
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto count = w == 0 || random() % 4 == 0 ? 0 : random() % static_cast<std::uint64_t>(most + 1);
      for (std::uint64_t e = 0; e < count; ++e)
        columns.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(w)));
      data.push_back(static_cast<std::int64_t>(columns.size()));
    }
    data.insert(data.end(), columns.begin(), columns.end());
  }
  std::int64_t entries() const { return static_cast<std::int64_t>(data.size()) - rows - 1; }
  std::int64_t offset(std::int64_t row) const { return data[static_cast<std::size_t>(row)]; }
  std::int64_t column(std::int64_t e) const { return data[static_cast<std::size_t>(rows + 1 + e)]; }
};

/// Whole numbers, so that floating sums are exact; for narrow integers large enough that products wrap.
template <class T> std::vector<T> numbers(std::int64_t count, std::mt19937_64& random) {
  std::vector<T> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(std::is_integral_v<T> ? static_cast<T>(random())
                                           : static_cast<T>(static_cast<int>(random() % 15) - 7));
  return result;
}

template <class T> T product(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
}

struct Call {
  std::vector<Shape> sizes, strides;
  std::vector<TensorView> views;
  std::vector<std::int64_t> attributes;
  void add(void* data, DType dtype, const Shape& shape, const Shape& steps) {
    sizes.push_back(shape), strides.push_back(steps);
    views.push_back({data, dtype, static_cast<std::uint8_t>(shape.rank()), nullptr, nullptr});
  }
  void run(CallKernel kernel, Op op) {
    for (std::size_t i = 0; i < views.size(); ++i)
      views[i].sizes = sizes[i].data(), views[i].strides = strides[i].data();
    const std::span<const TensorView> all(views);
    kernel({op, all.first(3), all.subspan(3), attributes, {}});
  }
};

template <class T> class Csr : public ::testing::Test {};
using Elements =
    ::testing::Types<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::int32_t, std::int64_t, float, double>;
TYPED_TEST_SUITE(Csr, Elements);

TYPED_TEST(Csr, ProductsOfBothKinds) {
  using T = TypeParam;
  std::mt19937_64 random(11);
  for (const std::int64_t columns : {1, 2, 15, 64, 65, 131, 300})
    for (const bool transposed : {false, true}) {
      Pattern p(37, 23, 20, random);
      auto values = numbers<T>(p.entries(), random);
      const std::int64_t contracted = transposed ? p.rows : p.width, results = transposed ? p.width : p.rows;
      // Every second row of a larger matrix: rows need not touch.
      auto dense = numbers<T>(2 * contracted * columns, random);
      std::vector<T> out(static_cast<std::size_t>(results * columns), T(9)), wanted(out.size(), T(0));
      for (std::int64_t i = 0; i < p.rows; ++i)
        for (std::int64_t e = p.offset(i); e < p.offset(i + 1); ++e)
          for (std::int64_t j = 0; j < columns; ++j) {
            const std::int64_t from = transposed ? i : p.column(e), to = transposed ? p.column(e) : i;
            T& sum = wanted[static_cast<std::size_t>(to * columns + j)];
            sum = static_cast<T>(sum + product(values[static_cast<std::size_t>(e)],
                                               dense[static_cast<std::size_t>(2 * from * columns + j)]));
          }
      Call call;
      call.add(p.data.data(), DType::i64, {p.rows + 1 + p.entries()}, {1});
      call.add(values.data(), dtype_of<T>, {p.entries()}, {1});
      call.add(dense.data(), dtype_of<T>, {contracted, columns}, {2 * columns, 1});
      call.add(out.data(), dtype_of<T>, {results, columns}, {columns, 1});
      call.attributes = {p.width, transposed ? 1 : 0};
      call.run(&csr_matmul_call, Op::csr_matmul);
      EXPECT_EQ(out, wanted) << columns << " " << transposed;
    }
}

TYPED_TEST(Csr, EveryInstructionSetGivesTheSame) {
  using T = TypeParam;
  std::mt19937_64 random(12);
  std::vector<const CsrKernels*> kernels{&kCsrBaseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) kernels.push_back(&kCsrAvx2);
  if (&csr_kernels() == &kCsrAvx512) kernels.push_back(&kCsrAvx512);
#endif
  for (const std::int64_t columns : {1, 7, 40, 200}) {
    const Pattern p(19, 50, 30, random);
    auto values = numbers<T>(p.entries(), random), dense = numbers<T>(p.width * columns, random);
    if constexpr (std::is_floating_point_v<T>)
      for (T& v : values) v = v / T(3);  // sums round, in one order
    std::vector<T> first;
    for (const CsrKernels* k : kernels) {
      std::vector<T> out(static_cast<std::size_t>(p.rows * columns));
      const CsrRows rows{{p.data.data(), p.data.data() + p.rows + 1, p.rows, p.entries(), p.width},
                         values.data(),
                         dense.data(),
                         out.data(),
                         columns,
                         columns};
      k->rows[csr_element(dtype_of<T>)](rows, 0, p.rows);
      if (first.empty()) first = out;
      EXPECT_EQ(out, first);
    }
  }
}

TYPED_TEST(Csr, Samples) {
  using T = TypeParam;
  std::mt19937_64 random(13);
  for (const std::int64_t width : {0, 1, 15, 16, 50}) {
    Pattern p(9, 12, 8, random);
    auto lhs = numbers<T>(p.rows * width, random), rhs = numbers<T>(p.width * width, random);
    std::vector<T> out(static_cast<std::size_t>(p.entries())), wanted(out.size(), T(0));
    for (std::int64_t i = 0; i < p.rows; ++i)
      for (std::int64_t e = p.offset(i); e < p.offset(i + 1); ++e)
        for (std::int64_t j = 0; j < width; ++j) {
          T& sum = wanted[static_cast<std::size_t>(e)];
          sum = static_cast<T>(sum + product(lhs[static_cast<std::size_t>(i * width + j)],
                                             rhs[static_cast<std::size_t>(p.column(e) * width + j)]));
        }
    Call call;
    call.add(p.data.data(), DType::i64, {p.rows + 1 + p.entries()}, {1});
    call.add(lhs.data(), dtype_of<T>, {p.rows, width}, {width, 1});
    call.add(rhs.data(), dtype_of<T>, {p.width, width}, {width, 1});
    call.add(out.data(), dtype_of<T>, {p.entries()}, {1});
    call.run(&csr_sampled_matmul_call, Op::csr_sampled_matmul);
    EXPECT_EQ(out, wanted) << width;
  }
}

TEST(CsrPattern, BrokenOnesAreErrors) {
  for (std::vector<std::int64_t> data : {std::vector<std::int64_t>{0, 1, 2, 0, 3},
                                         {0, 1, 2, 0, -1},
                                         {0, 2, 1, 0, 1},
                                         {1, 1, 2, 0, 1},
                                         {0, 3, 2, 0, 1},
                                         {0, INT64_MIN, 2, 0, 1}}) {
    std::vector<float> values(2, 1), dense(6, 1), out(4);
    Call call;
    call.add(data.data(), DType::i64, {5}, {1});
    call.add(values.data(), DType::f32, {2}, {1});
    call.add(dense.data(), DType::f32, {3, 2}, {2, 1});
    call.add(out.data(), DType::f32, {2, 2}, {2, 1});
    call.attributes = {3, 0};
    EXPECT_THROW(call.run(&csr_matmul_call, Op::csr_matmul), IndexError);
  }
}

}  // namespace
}  // namespace fermata

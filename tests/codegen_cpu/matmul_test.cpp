// Tests of codegen_cpu/library: every matmul against exact or double-precision products, over dtypes, shapes, strides
// and threads.
#include "codegen_cpu/library/matmul.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "codegen_cpu/library/matmul_amx.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "codegen_cpu/library/matmul_tiny_kernels.h"
#include "ir/error.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"
#include "tests/codegen_cpu/matmul_product.h"

namespace fermata {
namespace {

struct ThreadCount {
  explicit ThreadCount(int n) : saved(thread_count()) { set_thread_count(n); }
  ~ThreadCount() { set_thread_count(saved); }
  const int saved;
};

struct Variant {
  const char* name;
  CallKernel call;
  void (*call_with)(const CallArgs&, TileEpilogue);
  bool (*fits)(const CallArgs&);
  double (*cost)(const CallArgs&);
};
const Variant kVariants[] = {
    {"amx", matmul_amx, matmul_amx, matmul_amx_fits, matmul_amx_cost},
    {"pairs", matmul_bf16_pairs, matmul_bf16_pairs, matmul_bf16_pairs_fits, matmul_bf16_pairs_cost},
    {"onednn", matmul_onednn, matmul_onednn, matmul_onednn_fits, matmul_onednn_cost},
    {"libxsmm", matmul_libxsmm, matmul_libxsmm, matmul_libxsmm_fits, matmul_libxsmm_cost},
    {"tiny", matmul_tiny, matmul_tiny, matmul_tiny_fits, matmul_tiny_cost},
    {"portable", matmul_portable, matmul_portable, matmul_portable_fits, matmul_portable_cost},
};

const DType kReals[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8,  DType::u8,
                        DType::i16, DType::u16, DType::i32,  DType::u32, DType::i64, DType::u64};

void check(DType t, const Shape& a, const Shape& b, Layout la, Layout lb, std::mt19937_64& random) {
  for (const Variant& v : kVariants) {
    Product p(t, a, b, la, lb, random);
    if (!v.fits(p.args())) continue;
    EXPECT_GT(v.cost(p.args()), 0);
    v.call(p.args());
    const std::int64_t every = element_count(p.out.sizes) > 10'000 ? 37 : 1;
    expect_product(p,
                   std::string(v.name) + " " + to_string(t, a) + " @ " + to_string(t, b) + " layouts " +
                       std::to_string(static_cast<int>(la)) + " " + std::to_string(static_cast<int>(lb)),
                   every);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Matmul, EveryDTypeShapeAndLayout) {
  std::mt19937_64 random(seed());
  const Shape kShapes[][2] = {{{1, 1}, {1, 1}},       {{2, 3}, {3, 4}},     {{17, 5}, {5, 33}},   {{64, 64}, {64, 64}},
                              {{65, 130}, {130, 67}}, {{1, 70}, {70, 130}}, {{130, 70}, {70, 1}}, {{1, 200}, {200, 1}},
                              {{13, 1}, {1, 21}},     {{3, 400}, {400, 3}}, {{70, 16}, {16, 16}}};
  std::size_t round = 0;
  for (const DType t : kReals)
    for (const auto& [a, b] : kShapes)
      for (const Layout la : kLayouts) {
        check(t, a, b, la, kLayouts[round++ * 7 / 5 % 5], random);
        if (HasFatalFailure()) return;
      }
}

TEST(Matmul, VectorsAndBatches) {
  std::mt19937_64 random(seed());
  const Shape kShapes[][2] = {{{5}, {5}},
                              {{70}, {70, 9}},
                              {{9, 70}, {70}},
                              {{4, 9, 7}, {7}},
                              {{7}, {4, 7, 9}},
                              {{3, 8, 5}, {3, 5, 6}},
                              {{3, 8, 5}, {5, 6}},
                              {{8, 5}, {3, 5, 6}},
                              {{2, 1, 8, 5}, {3, 5, 6}},
                              {{4, 1, 2, 8, 5}, {1, 3, 1, 5, 6}},
                              {{6, 1, 5}, {5, 6}},
                              {{2, 3, 1, 5}, {3, 5, 1}},
                              {{64, 32, 32}, {64, 32, 32}}};
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8, DType::u16, DType::i64})
    for (const auto& [a, b] : kShapes)
      for (const Layout la : kLayouts)
        for (const Layout lb : {Layout::rows, Layout::columns, Layout::reversed}) {
          check(t, a, b, la, lb, random);
          if (HasFatalFailure()) return;
        }
}

TEST(Matmul, LargeProductsAreCutIntoTilesThatDoNotDependOnThreads) {
  std::mt19937_64 random(seed());
  const Shape kShapes[][2] = {{{700, 310}, {310, 650}}, {{5, 250, 200}, {200, 300}}, {{1, 3000}, {3000, 2100}},
                              {{3000, 500}, {500, 1}},  {{2000, 40}, {40, 50}},      {{6, 200, 200}, {6, 200, 200}}};
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::i8, DType::f16})
    for (const auto& [a, b] : kShapes)
      for (const Variant& v : kVariants) {
        Product p(t, a, b, Layout::rows, t == DType::f64 ? Layout::columns : Layout::rows, random);
        if (!v.fits(p.args())) continue;
        std::vector<std::byte> first;
        for (const int n : {1, 2, 3}) {
          const ThreadCount threads(n);
          std::fill(p.out.bytes.begin(), p.out.bytes.end(), std::byte{0xee});
          v.call(p.args());
          if (n == 1) first = p.out.bytes;
          ASSERT_TRUE(first == p.out.bytes) << v.name << " " << to_string(t, a) << " @ " << to_string(t, b) << " " << n;
        }
        expect_product(p, std::string(v.name) + " " + to_string(t, a) + " @ " + to_string(t, b), 977);
        if (HasFatalFailure()) return;
      }
}

TEST(Matmul, EmptyAxes) {
  std::mt19937_64 random(seed());
  for (const DType t : kReals) {
    Product nothing(t, {4, 0}, {0, 5}, Layout::rows, Layout::rows, random);
    std::fill(nothing.out.bytes.begin(), nothing.out.bytes.end(), std::byte{0xee});
    EXPECT_FALSE(matmul_onednn_fits(nothing.args()));
    EXPECT_FALSE(matmul_libxsmm_fits(nothing.args()));
    ASSERT_TRUE(matmul_portable_fits(nothing.args()));
    matmul_portable(nothing.args());
    expect_product(nothing, "K = 0");
    for (const auto& [a, b] : {std::pair{Shape{0, 4}, Shape{4, 5}}, std::pair{Shape{4, 3}, Shape{3, 0}},
                               std::pair{Shape{0, 2, 3}, Shape{3, 4}}, std::pair{Shape{0}, Shape{0}}}) {
      Product empty(t, a, b, Layout::rows, Layout::rows, random);
      matmul_portable(empty.args());
      if (a.rank() == 1) expect_product(empty, "dot of nothing");
    }
  }
}

TEST(Matmul, NanAndInfinityReachTheResult) {
  std::mt19937_64 random(seed());
  for (const Variant& v : kVariants) {
    Product p(DType::f32, {70, 64}, {64, 65}, Layout::rows, Layout::rows, random);
    if (!v.fits(p.args())) continue;
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    std::memcpy(p.lhs.bytes.data() + (3 * 64 + 5) * 4, &nan, 4);
    std::memcpy(p.rhs.bytes.data() + (63 * 65 + 64) * 4, &infinity, 4);
    v.call(p.args());
    for (std::int64_t i = 0; i < 70; ++i)
      for (std::int64_t j = 0; j < 65; ++j) {
        const float x = p.out.read<float>(i * 65 + j);
        if (i == 3)
          EXPECT_TRUE(std::isnan(x)) << v.name;
        else
          EXPECT_EQ(std::isinf(x), j == 64) << v.name << " " << i << " " << j;
      }
  }
}

TEST(Matmul, PortableIsOneChainInOrderOfDepth) {
  std::mt19937_64 random(seed());
  Product p(DType::f32, {30, 500}, {500, 70}, Layout::columns, Layout::rows, random);
  matmul_portable(p.args());
  for (std::int64_t i = 0; i < 30 * 70; ++i) {
    const auto e = p.element(i);
    float sum = 0;
    for (std::int64_t k = 0; k < 500; ++k)
      sum = std::fma(p.lhs.read<float>(e.lhs + k * p.lhs_step()), p.rhs.read<float>(e.rhs + k * p.rhs_step()), sum);
    ASSERT_EQ(p.out.read<float>(i), sum) << i << ", seed " << seed();
  }
}

/// The kernels that this processor can run.
std::vector<const PortableKernels*> runnable_kernels() {
  std::vector<const PortableKernels*> kernels{&kPortableBaseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) kernels.push_back(&kPortableAvx2);
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    kernels.push_back(&kPortableAvx512);
#endif
  return kernels;
}

/// Several columns are summed together where there is one vector, not where there are two.
template <class T>
void one_vector_as_one_of_two(const PortableKernels& kernels, MatmulStorage storage, std::mt19937_64& random) {
  const auto run = kernels.vector_product[static_cast<std::size_t>(storage)];
  std::normal_distribution<T> normal;
  for (const std::int64_t k : {1, 3, 8, 15, 16, 17, 40, 63, 64, 65, 100, 130, 500, 513})
    for (const std::int64_t columns : {1, 7, 16, 33})
      for (const std::int64_t gap : {0, 1, 20}) {
        std::vector<T> x(static_cast<std::size_t>(2 * k)), one(static_cast<std::size_t>(columns)), two(2 * one.size()),
            matrix(static_cast<std::size_t>((columns - 1) * (k + gap) + k));
        for (T& v : x) v = normal(random);
        for (T& v : matrix) v = random() % 9 == 0 ? -T(0) : normal(random);
        std::vector<std::byte> memory(vector_scratch_bytes(2, k) + 64);
        void* const scratch = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
        run({x.data(), 1, 0, 1, matrix.data(), 1, k + gap, true, one.data(), 0, 1, columns, k, scratch});
        run({x.data(), 2, k, 1, matrix.data(), 1, k + gap, true, two.data(), columns, 1, columns, k, scratch});
        ASSERT_EQ(std::memcmp(one.data(), two.data(), one.size() * sizeof(T)), 0)
            << k << " elements, " << columns << " columns, gap " << gap << ", seed " << seed();
      }
}
TEST(Matmul, OneVectorGivesTheBitsOfTwo) {
  std::mt19937_64 random(seed());
  for (const PortableKernels* const kernels : runnable_kernels()) {
    one_vector_as_one_of_two<float>(*kernels, MatmulStorage::f32, random);
    one_vector_as_one_of_two<double>(*kernels, MatmulStorage::f64, random);
  }
}

/// Calls a tile kernel for a whole product, with the right side as it lies or in panels.
void multiply_tile(const PortableKernels& kernels, std::size_t storage, Product& p, bool in_panels) {
  const std::int64_t rows = p.lhs.sizes[0], columns = p.rhs.sizes[1], k = p.depth();
  const auto of = static_cast<MatmulStorage>(storage);
  std::vector<std::byte> memory(portable_scratch_bytes(of, rows, columns) + 64),
      panels(static_cast<std::size_t>((columns + 64) * panel_rows(k)) * sum_bytes(of) + 64);
  const auto aligned = [](std::vector<std::byte>& bytes) {
    return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64);
  };
  std::fill(memory.begin(), memory.end(), std::byte{0xff});  // NaN, if it reached a result
  std::fill(panels.begin(), panels.end(), std::byte{0xff});
  if (in_panels)
    kernels.pack_rhs[storage]({p.inputs[1].data, p.rhs.strides[0], p.rhs.strides[1], k, columns, aligned(panels)});
  kernels.tile[storage]({p.inputs[0].data, p.lhs.strides[0], p.lhs.strides[1], p.inputs[1].data, p.rhs.strides[0],
                         p.rhs.strides[1], in_panels ? aligned(panels) : nullptr, p.out.bytes.data(), columns, rows,
                         columns, k, aligned(memory)});
}

TEST(Matmul, PortableBitsAreTheSameForEveryInstructionSetAndPacking) {
  std::mt19937_64 random(seed());
  const DType dtypes[] = {DType::u8,  DType::u16,  DType::u32, DType::u64,
                          DType::f16, DType::bf16, DType::f32, DType::f64};
  // Whole and partial panels, row counts with every rest, more than one block of rows and of depth.
  const std::int64_t kSizes[][3] = {{1, 1, 1},     {2, 16, 8},    {7, 33, 17},   {13, 32, 64},
                                    {29, 40, 255}, {50, 90, 300}, {117, 40, 517}};
  std::size_t round = 0;
  for (std::size_t s = 0; s < std::size(dtypes); ++s)
    for (const auto& [m, n, k] : kSizes)
      for (const Layout layout : kLayouts) {
        Product p(dtypes[s], {m, k}, {k, n}, kLayouts[round++ % 5], layout, random);
        std::vector<std::byte> first;
        for (const PortableKernels* kernels : runnable_kernels())
          for (const bool in_panels : {false, true}) {
            std::fill(p.out.bytes.begin(), p.out.bytes.end(), std::byte{0xee});
            multiply_tile(*kernels, s, p, in_panels);
            if (first.empty()) {
              first = p.out.bytes;
              if (layout == Layout::rows) expect_product(p, std::string(name(dtypes[s])));
              if (HasFatalFailure()) return;
            }
            ASSERT_TRUE(first == p.out.bytes)
                << name(dtypes[s]) << " " << m << " " << n << " " << k << " layout " << static_cast<int>(layout)
                << " panels " << in_panels << ", seed " << seed();
          }
      }
}

TEST(Matmul, PortableVectorBitsAreTheSameForEveryInstructionSet) {
  std::mt19937_64 random(seed());
  constexpr std::int64_t kDepth = 300, kColumns = 90;
  std::vector<std::byte> scratch(vector_scratch_bytes(kFewVectors, kDepth) + 64);
  void* const aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
  const DType dtypes[] = {DType::u8,  DType::u16,  DType::u32, DType::u64,
                          DType::f16, DType::bf16, DType::f32, DType::f64};
  for (std::size_t s = 0; s < std::size(dtypes); ++s)
    for (const bool by_halves : {false, true}) {
      const std::int64_t vectors = by_halves ? kFewVectors : 1;
      Product p(dtypes[s], {vectors, kDepth}, {kDepth, kColumns}, Layout::rows,
                by_halves ? Layout::columns : Layout::rows, random);
      const auto bytes = static_cast<std::int64_t>(byte_size(dtypes[s]));
      const auto multiply = [&](const PortableKernels& kernels, std::int64_t first, std::int64_t count) {
        kernels.vector_product[s]({.vector = p.lhs.bytes.data() + first * kDepth * bytes,
                                   .vectors = count,
                                   .to_next_vector = kDepth,
                                   .vector_stride = 1,
                                   .matrix = p.rhs.bytes.data(),
                                   .matrix_k = by_halves ? 1 : kColumns,
                                   .matrix_column = by_halves ? kDepth : 1,
                                   .by_halves = by_halves,
                                   .out = p.out.bytes.data() + first * kColumns * bytes,
                                   .out_vector = kColumns,
                                   .out_column = 1,
                                   .columns = kColumns,
                                   .k = kDepth,
                                   .scratch = aligned});
      };
      std::vector<std::byte> expected;
      for (const PortableKernels* kernels : runnable_kernels()) {
        if (expected.empty()) {
          for (std::int64_t r = 0; r < vectors; ++r) multiply(*kernels, r, 1);
          expected = p.out.bytes;
        }
        for (std::int64_t count = 1; count <= vectors; ++count) {
          std::fill(p.out.bytes.begin(), p.out.bytes.end(), std::byte{0xee});
          multiply(*kernels, 0, count);
          const std::ptrdiff_t size = count * kColumns * bytes;
          EXPECT_TRUE(std::equal(expected.begin(), expected.begin() + size, p.out.bytes.begin()))
              << name(dtypes[s]) << " " << count << " vectors";
        }
      }
    }
}

/// Columns of few elements, with others between them that are NaN where they are floats.
TEST(Matmul, PortableVectorsReadOnlyTheirElements) {
  std::mt19937_64 random(seed());
  constexpr std::int64_t kColumns = 9;
  const DType dtypes[] = {DType::u8,  DType::u16,  DType::u32, DType::u64,
                          DType::f16, DType::bf16, DType::f32, DType::f64};
  for (std::size_t s = 0; s < std::size(dtypes); ++s)
    for (const std::int64_t k : {1, 5, 8, 15, 17, 31, 40, 63, 64, 65, 83})
      for (const std::int64_t between : {0, 1, 40}) {
        Product p(dtypes[s], {kFewVectors, k}, {k, kColumns}, Layout::rows, Layout::columns, random);
        const auto bytes = static_cast<std::int64_t>(byte_size(dtypes[s]));
        const std::int64_t column = k + between;
        std::vector<std::byte> matrix(static_cast<std::size_t>(((kColumns - 1) * column + k) * bytes), std::byte{0xff});
        for (std::int64_t j = 0; j < kColumns; ++j)
          std::copy_n(p.rhs.bytes.begin() + j * k * bytes, k * bytes, matrix.begin() + j * column * bytes);
        std::vector<std::byte> scratch(vector_scratch_bytes(kFewVectors, k) + 64);
        const auto multiply = [&](const PortableKernels& kernels, std::int64_t first, std::int64_t count,
                                  std::int64_t vectors) {
          kernels.vector_product[s](
              {.vector = p.lhs.bytes.data(),
               .vectors = vectors,
               .to_next_vector = k,
               .vector_stride = 1,
               .matrix = matrix.data() + first * column * bytes,
               .matrix_k = 1,
               .matrix_column = column,
               .by_halves = true,
               .out = p.out.bytes.data() + first * bytes,
               .out_vector = kColumns,
               .out_column = 1,
               .columns = count,
               .k = k,
               .scratch = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64)});
        };
        std::vector<std::byte> expected;
        for (const PortableKernels* kernels : runnable_kernels())
          for (std::int64_t vectors = 1; vectors <= kFewVectors; ++vectors) {
            std::fill(p.out.bytes.begin(), p.out.bytes.end(), std::byte{0xee});
            for (std::int64_t j = 0; j < kColumns; ++j) multiply(*kernels, j, 1, vectors);
            const std::vector<std::byte> one_by_one = p.out.bytes;
            std::fill(p.out.bytes.begin(), p.out.bytes.end(), std::byte{0xee});
            multiply(*kernels, 0, kColumns, vectors);
            ASSERT_TRUE(p.out.bytes == one_by_one) << name(dtypes[s]) << " " << k << " and " << between;
            if (vectors != kFewVectors) continue;
            if (expected.empty()) expected = p.out.bytes, expect_product(p, std::string(name(dtypes[s])));
            ASSERT_TRUE(p.out.bytes == expected) << name(dtypes[s]) << " " << k << " and " << between;
          }
      }
}

/// Few rows, or few columns, in every layout; whatever threads do.
TEST(Matmul, FewVectors) {
  std::mt19937_64 random(seed());
  for (const DType dtype : {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32, DType::f64})
    for (std::int64_t few = 2; few <= kFewVectors + 1; ++few)
      for (const std::int64_t k : {kLeastByHalves - 1, kLeastByHalves, std::int64_t{511}})
        for (const Layout other : kLayouts)
          for (const bool rows : {false, true}) {
            const std::int64_t many = 37;
            Product p(dtype, {3, rows ? few : many, k}, {k, rows ? many : few}, rows ? other : Layout::rows,
                      rows ? Layout::columns : other, random);
            const ThreadCount threads(static_cast<int>(1 + random() % 3));
            std::fill(p.out.bytes.begin(), p.out.bytes.end(), std::byte{0xee});
            matmul_portable(p.args());
            expect_product(p, std::string(name(dtype)));
            if (HasFailure()) return;
          }
}

TEST(Matmul, TinyProductsHaveTheBitsOfThePortableKernel) {
  std::mt19937_64 random(seed());
  const auto size = [&] { return static_cast<std::int64_t>(1 + random() % kTinyMost); };
  for (int round = 0; round < 1500; ++round) {
    const std::int64_t m = size(), n = size(), k = size(), batches = size() * size();
    Shape lhs{batches, m, k}, rhs{batches, k, n};
    switch (random() % 6) {
      case 0: lhs = {m, k}; break;
      case 1: rhs = {k, n}; break;
      case 2: lhs = {batches, 1, k}; break;
      case 3: rhs = {k}; break;
      case 4: lhs = {3, batches, m, k}; break;
      default: break;
    }
    Product p(random() % 2 == 0 ? DType::f32 : DType::f64, lhs, rhs, kLayouts[random() % 5], kLayouts[random() % 5],
              random);
    if (!matmul_tiny_fits(p.args())) continue;
    const ThreadCount threads(static_cast<int>(1 + random() % 3));
    const auto result_of = [&](CallKernel kernel) {  // what lies behind it must stay as it is
      std::fill(p.out.bytes.begin(), p.out.bytes.end(), std::byte{0xee});
      kernel(p.args());
      return p.out.bytes;
    };
    ASSERT_TRUE(result_of(matmul_tiny) == result_of(matmul_portable))
        << to_string(p.lhs.dtype, lhs) << " @ " << to_string(p.lhs.dtype, rhs) << ", round " << round << ", seed "
        << seed();
  }
}

TEST(Matmul, TheEpilogueSeesEveryFinishedTileOnce) {
  std::mt19937_64 random(seed());
  const ThreadCount threads(3);
  const Shape kShapes[][2] = {{{700, 310}, {310, 650}}, {{3, 130, 40}, {3, 40, 100}}, {{1, 900}, {900, 2500}},
                              {{900, 50}, {50, 1}},     {{4, 3, 300, 60}, {60, 70}},  {{5, 0}, {0, 6}},
                              {{60, 3, 3}, {60, 3, 3}}, {{7, 9, 5, 4}, {9, 4, 1}}};
  for (const auto& [a, b] : kShapes)
    for (const Variant& v : kVariants) {
      Product plain(DType::f32, a, b, Layout::rows, Layout::rows, random);
      if (!v.fits(plain.args())) continue;
      v.call(plain.args());
      std::vector<float> expected;
      for (std::int64_t i = 0; i < element_count(plain.out.sizes); ++i)
        expected.push_back(-2 * plain.out.read<float>(i) + 1);
      auto* const out = reinterpret_cast<float*>(plain.out.bytes.data());
      const std::int64_t row = plain.out.sizes.back();
      std::atomic<int> misplaced{0};
      v.call_with(plain.args(), [&](const ResultTile& t) {
        if (t.column_begin % 64 != 0 || (t.column_end % 64 != 0 && t.column_end != row)) ++misplaced;
        for (std::int64_t i = t.row_begin; i < t.row_end; ++i)
          for (std::int64_t j = t.column_begin; j < t.column_end; ++j) out[i * row + j] = -2 * out[i * row + j] + 1;
      });
      EXPECT_EQ(misplaced, 0) << v.name;
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(out[i], expected[i]) << v.name << " element " << i;
    }
}

TEST(Matmul, SeveralThreadsMultiplyAtOnce) {
  const ThreadCount threads(2);
  std::vector<std::thread> users;
  for (std::uint64_t u = 0; u < 3; ++u)
    users.emplace_back([u] {
      std::mt19937_64 random(seed() + u);
      for (int round = 0; round < 20; ++round) {
        const auto m = static_cast<std::int64_t>(1 + random() % 150), n = static_cast<std::int64_t>(1 + random() % 150);
        check(round % 2 == 0 ? DType::f32 : DType::bf16, {m, 40}, {40, n}, Layout::rows, Layout::columns, random);
      }
    });
  for (std::thread& t : users) t.join();
}

TEST(Matmul, SmallProductsGoToTheSmallKernels) {
  std::mt19937_64 random(seed());
  Product small(DType::f32, {64, 32, 32}, {64, 32, 32}, Layout::rows, Layout::rows, random);
  Product large(DType::f32, {1024, 256}, {256, 1024}, Layout::rows, Layout::rows, random);
  Product row(DType::f32, {1, 512}, {512, 2048}, Layout::rows, Layout::rows, random);
  if (has_libxsmm() && has_onednn()) {
    EXPECT_LT(matmul_libxsmm_cost(small.args()), matmul_onednn_cost(small.args()));
    EXPECT_LT(matmul_libxsmm_cost(small.args()), matmul_portable_cost(small.args()));
  }
  if (has_onednn()) { EXPECT_GT(matmul_onednn_cost(row.args()), matmul_portable_cost(row.args())); }
  EXPECT_FALSE(matmul_libxsmm_fits(large.args()));
  Product tiny(DType::f32, {1000, 3, 3}, {1000, 3, 3}, Layout::rows, Layout::rows, random);
  if (matmul_tiny_fits(tiny.args())) {
    EXPECT_LT(matmul_tiny_cost(tiny.args()), matmul_portable_cost(tiny.args()));
    if (has_libxsmm()) { EXPECT_LT(matmul_tiny_cost(tiny.args()), matmul_libxsmm_cost(tiny.args())); }
  }
}

}  // namespace
}  // namespace fermata

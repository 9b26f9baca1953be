// Tests of codegen_cpu/irregular: every kernel against element-by-element loops, over dtypes, strides and threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "dispatch/call.h"
#include "dispatch/kernel_table.h"
#include "ir/error.h"
#include "ir/float16.h"
#include "ir/op_traits.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"
#include "tests/codegen_cpu/test_tensor.h"

namespace fermata {
namespace {

const DType kOneOfEachSize[] = {DType::boolean, DType::bf16, DType::f32, DType::i64, DType::c128};

TEST(StridedCopy, AgreesWithALoopForRandomLayouts) {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 300; ++round) {
    const ThreadCount threads(1 + round % 3);
    const DType dtype = kOneOfEachSize[random() % 5];
    Shape sizes;
    const std::size_t rank = random() % 5;
    const std::int64_t most = round % 10 == 0 ? 30 : 9;
    for (std::size_t i = 0; i < rank; ++i)
      sizes.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + (round % 7 != 0));
    std::vector<unsigned> order(rank);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random);
    TestTensor from = round % 2 == 0 ? TestTensor(dtype, sizes, order) : TestTensor(dtype, sizes);
    std::shuffle(order.begin(), order.end(), random);
    TestTensor to = round % 3 == 0 ? TestTensor(dtype, sizes, order) : TestTensor(dtype, sizes);
    from.fill(random);
    const TensorView t = to.view(), f = from.view();
    strided_copy({t.data, to.strides}, {f.data, from.strides}, sizes, byte_size(dtype));
    for (std::int64_t i = 0; i < element_count(sizes); ++i)
      ASSERT_TRUE(same(to, i, from, i)) << "round " << round << " " << to_string(dtype, sizes);
  }
}

/// Elements that are only read, with a stride for each axis that knows nothing of the others: windows that overlap,
/// stretched and reversed axes, transposed ones, gaps.
TestTensor any_strides(DType dtype, const Shape& sizes, std::mt19937_64& random) {
  TestTensor x(dtype, sizes);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  std::int64_t low = 0, high = 0;
  for (unsigned i = 0; i < sizes.rank(); ++i) {
    const std::int64_t other = sizes[static_cast<std::size_t>(below(sizes.rank()))];
    const std::int64_t choices[] = {0, 1, below(9), x.strides[i], other, other + below(4)};
    x.strides[i] = choices[below(std::size(choices))] * (below(6) == 0 ? -1 : 1);
    const std::int64_t reach = x.strides[i] * std::max<std::int64_t>(sizes[i] - 1, 0);
    (reach < 0 ? low : high) += reach;
  }
  x.start = -low;
  x.bytes.clear(), x.bytes.shrink_to_fit();
  x.bytes.resize(static_cast<std::size_t>(high - low + 1) * byte_size(dtype));  // no more, for the sanitizers
  return x;
}

/// A number of rounds; FERMATA_FUZZ_COUNT chooses another.
int rounds_or(int otherwise) {
  const char* const text = std::getenv("FERMATA_FUZZ_COUNT");
  return text != nullptr ? std::atoi(text) : otherwise;
}

TEST(StridedCopy, AgreesWithALoopForAnyStrides) {
  constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 70, 130};
  for (int round = 0; round < rounds_or(600); ++round) {
    std::mt19937_64 random(seed() + static_cast<std::uint64_t>(round));
    const ThreadCount threads(1 + round % 3);
    const DType dtype = kOneOfEachSize[random() % 5];
    Shape sizes;
    for (std::size_t rank = random() % 6; sizes.rank() < rank && element_count(sizes) < 600;)
      sizes.push_back(kSizes[random() % 40 == 0 ? 0 : 1 + random() % (std::size(kSizes) - 1)]);
    std::vector<unsigned> order(sizes.rank());
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random);
    TestTensor from = any_strides(dtype, sizes, random);
    TestTensor to = random() % 3 == 0 ? TestTensor(dtype, sizes, order) : TestTensor(dtype, sizes);
    from.fill(random), to.fill(random);
    TestTensor wanted = to;
    for (std::int64_t i = 0; i < element_count(sizes); ++i) std::memcpy(wanted.at(i), from.at(i), byte_size(dtype));
    const TensorView t = to.view(), f = from.view();
    strided_copy({t.data, to.strides}, {f.data, from.strides}, sizes, byte_size(dtype));
    ASSERT_TRUE(to.bytes == wanted.bytes)
        << "FERMATA_TEST_SEED=" << seed() + static_cast<std::uint64_t>(round) << " FERMATA_FUZZ_COUNT=1 "
        << to_string(dtype, sizes) << " strides " << to_string(std::span<const std::int64_t>(from.strides));
  }
}

TEST(StridedCopy, LargeTransposesAndBroadcastsAgree) {
  std::mt19937_64 random(seed());
  const ThreadCount threads(3);
  const Shape sizes{300, 257, 5};
  TestTensor from(DType::i16, Shape{5, 257, 300});
  from.fill(random);
  TestTensor to(DType::i16, sizes);
  const Shape transposed{1, 300, 257 * 300};
  strided_copy({to.bytes.data(), to.strides}, {from.bytes.data(), transposed}, sizes, 2);
  for (std::int64_t i = 0; i < 300; ++i)
    for (std::int64_t j = 0; j < 257; ++j)
      for (std::int64_t k = 0; k < 5; ++k) ASSERT_TRUE(same(to, (i * 257 + j) * 5 + k, from, (k * 257 + j) * 300 + i));
  const Shape stretched{0, 1, 0};
  strided_copy({to.bytes.data(), to.strides}, {from.bytes.data(), stretched}, sizes, 2);
  for (std::int64_t i = 0; i < element_count(sizes); ++i) ASSERT_TRUE(same(to, i, from, i / 5 % 257));
}

TEST(StridedCopy, TransposesOfEverySizeOfElements) {
  std::mt19937_64 random(seed());
  for (const DType dtype : kOneOfEachSize)
    for (const Shape& sizes : {Shape{64, 10}, Shape{37, 45}, Shape{16, 128}, Shape{3, 70, 33}, Shape{129, 4}}) {
      const std::size_t rank = sizes.rank();
      const std::int64_t rows = sizes[rank - 2], columns = sizes[rank - 1];
      TestTensor from(dtype, sizes), to(dtype, sizes);  // of which the last two axes are read as exchanged
      from.fill(random);
      Shape turned = dense_strides(sizes);
      turned[rank - 2] = 1, turned[rank - 1] = rows;
      strided_copy({to.bytes.data(), to.strides}, {from.bytes.data(), turned}, sizes, byte_size(dtype));
      for (std::int64_t p = 0; p < element_count(sizes); p += rows * columns)
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j)
            ASSERT_TRUE(same(to, p + i * columns + j, from, p + j * rows + i)) << to_string(dtype, sizes);
    }
}

TEST(StridedCopy, ShortAxesBesideALongOneInEveryOrder) {
  std::mt19937_64 random(seed());
  for (const DType dtype : kOneOfEachSize)
    for (const Shape& sizes :
         {Shape{2, 700, 4}, Shape{3, 2, 1300}, Shape{530, 3, 4}, Shape{2, 3, 2, 40}, Shape{1030, 1, 5}})
      for (std::vector<unsigned> order{0, 1, 2, 3}; const bool goes_back : {false, true}) {
        order.resize(sizes.rank());
        do {
          const ThreadCount threads(1 + static_cast<int>(order[0]));
          TestTensor from(dtype, sizes, order), to(dtype, sizes);
          from.fill(random);
          Shape strides = from.strides;
          auto* first = static_cast<std::byte*>(from.view().data);
          for (unsigned axis = 0; goes_back && axis < sizes.rank(); ++axis) {
            first += (sizes[axis] - 1) * strides[axis] * static_cast<std::int64_t>(byte_size(dtype));
            strides[axis] = -strides[axis];
          }
          strided_copy({to.bytes.data(), to.strides}, {first, strides}, sizes, byte_size(dtype));
          const std::int64_t count = element_count(sizes);
          for (std::int64_t i = 0; i < count; ++i)
            ASSERT_TRUE(same(to, i, from, goes_back ? count - 1 - i : i)) << to_string(dtype, sizes) << " at " << i;
        } while (std::next_permutation(order.begin(), order.end()));
      }
}

TEST(StridedCopy, TransposesOfNarrowMatricesWriteNothingElse) {
  std::mt19937_64 random(seed());
  for (const DType dtype : kOneOfEachSize)
    for (std::int64_t width = 1; width <= 34; ++width)
      for (const std::int64_t length : {15, 16, 32, 50}) {
        for (const bool is_wide : {false, true}) {
          const std::int64_t rows = is_wide ? width : length, columns = is_wide ? length : width, line = columns + 3;
          for (const std::int64_t to_line : {columns, line}) {
            TestTensor from(dtype, Shape{columns, rows}), to(dtype, Shape{rows + 1, line});
            from.fill(random), to.fill(random);
            TestTensor before = to;
            strided_copy({to.bytes.data(), Shape{to_line, 1}}, {from.bytes.data(), Shape{1, rows}},
                         Shape{rows, columns}, byte_size(dtype));
            std::vector<bool> written(static_cast<std::size_t>((rows + 1) * line));
            for (std::int64_t i = 0; i < rows; ++i)
              for (std::int64_t j = 0; j < columns; ++j) {
                written[static_cast<std::size_t>(i * to_line + j)] = true;
                ASSERT_TRUE(same(to, i * to_line + j, from, j * rows + i)) << rows << " x " << columns;
              }
            for (std::size_t k = 0; k < written.size(); ++k)
              ASSERT_TRUE(written[k] || same(to, static_cast<std::int64_t>(k), before, static_cast<std::int64_t>(k)))
                  << rows << " x " << columns << " at " << k;
          }
        }
      }
}

TEST(StridedCopy, WindowsThatOverlapAreCopiedInEitherOrder) {
  std::mt19937_64 random(seed());
  for (const DType dtype : kOneOfEachSize)
    for (std::int64_t step = 0; step <= 9; ++step)
      for (std::int64_t size = 1; size <= 19; ++size)
        for (const std::int64_t windows : {5, 37}) {
          TestTensor from(dtype, Shape{(windows - 1) * step + size});
          from.fill(random);
          for (const bool of_elements : {false, true}) {  // lines of one element of each window, or windows
            const Shape sizes = of_elements ? Shape{size, windows} : Shape{windows, size};
            TestTensor to(dtype, sizes);
            strided_copy({to.bytes.data(), to.strides},
                         {from.bytes.data(), of_elements ? Shape{1, step} : Shape{step, 1}}, sizes, byte_size(dtype));
            for (std::int64_t w = 0; w < windows; ++w)
              for (std::int64_t i = 0; i < size; ++i)
                ASSERT_TRUE(same(to, of_elements ? i * windows + w : w * size + i, from, w * step + i))
                    << windows << " windows of " << size << " elements, " << step << " apart";
          }
        }
}

TEST(StridedCopy, TheLastOfSeveralWritesWins) {
  const ThreadCount threads(4);
  TestTensor from(DType::i32, Shape{100'000});
  for (std::int64_t i = 0; i < 100'000; ++i) from.set(i, static_cast<std::int32_t>(i));
  TestTensor to(DType::i32, Shape{16});
  const Shape into{0, 1}, of{4, 1}, sizes{25'000, 4};
  strided_copy({to.bytes.data(), into}, {from.bytes.data(), of}, sizes, 4);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(to.get<std::int32_t>(i), 99'996 + i);
}

TEST(Concat, JoinsAlongAnyAxis) {
  std::mt19937_64 random(seed());
  for (const DType dtype : kOneOfEachSize) {
    for (std::int64_t axis = 0; axis < 3; ++axis) {
      Shape a{4, 5, 6}, b = a, c = a, sum = a;
      const auto x = static_cast<std::size_t>(axis);
      b[x] = 0, c[x] = 3, sum[x] = a[x] + 3;
      TestTensor first(dtype, a, {2, 0, 1}), empty(dtype, b), third(dtype, c), out(dtype, sum);
      first.fill(random), third.fill(random);
      call(Op::concat, {&first, &empty, &third}, out, {axis});
      std::int64_t inner = 1;
      for (std::size_t i = x + 1; i < 3; ++i) inner *= a[i];
      for (std::int64_t i = 0; i < element_count(sum); ++i) {
        const std::int64_t outer = i / inner / sum[x], at = i / inner % sum[x], rest = i % inner;
        if (at < a[x])
          ASSERT_TRUE(same(out, i, first, (outer * a[x] + at) * inner + rest));
        else
          ASSERT_TRUE(same(out, i, third, (outer * c[x] + at - a[x]) * inner + rest));
      }
    }
  }
}

TEST(Take, TakesRowsWithEveryIndexDType) {
  std::mt19937_64 random(seed());
  for (const DType index_dtype :
       {DType::u8, DType::u16, DType::u32, DType::u64, DType::i8, DType::i16, DType::i32, DType::i64}) {
    for (const DType dtype : kOneOfEachSize) {
      for (std::int64_t axis = 0; axis < 3; ++axis) {
        const Shape sizes{5, 4, 7};
        TestTensor x = random() % 2 == 0 ? TestTensor(dtype, sizes) : TestTensor(dtype, sizes, {1, 2, 0});
        x.fill(random);
        TestTensor index(index_dtype, Shape{2, 3}, {1, 0});
        const std::int64_t size = sizes[static_cast<std::size_t>(axis)];
        std::vector<std::int64_t> expected;
        for (std::int64_t i = 0; i < 6; ++i) {
          const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size));
          expected.push_back(at);
          const std::int64_t given = is_signed(index_dtype) && random() % 2 == 0 ? at - size : at;
          visit_compute(index_dtype, [&]<class T>() { index.set(i, static_cast<T>(given)); });
        }
        Shape result;
        for (std::int64_t i = 0; i < 3; ++i) {
          if (i == axis)
            result.push_back(2), result.push_back(3);
          else
            result.push_back(sizes[static_cast<std::size_t>(i)]);
        }
        TestTensor out(dtype, result);
        call(Op::take, {&x, &index}, out, {axis});
        std::int64_t inner = 1;
        for (std::int64_t i = axis + 1; i < 3; ++i) inner *= sizes[static_cast<std::size_t>(i)];
        for (std::int64_t i = 0; i < element_count(result); ++i) {
          const std::int64_t from =
              (i / inner / 6 * size + expected[static_cast<std::size_t>(i / inner % 6)]) * inner + i % inner;
          ASSERT_TRUE(same(out, i, x, from)) << name(index_dtype) << " axis " << axis;
        }
      }
    }
  }
}

TEST(Take, LargeGathersAgreeForAnyNumberOfThreads) {
  std::mt19937_64 random(seed());
  TestTensor x(DType::f32, Shape{1000, 3}), index(DType::i32, Shape{50'000});
  x.fill(random);
  for (std::int64_t i = 0; i < 50'000; ++i) index.set(i, static_cast<std::int32_t>(random() % 1000));
  for (const int n : {1, 3}) {
    const ThreadCount threads(n);
    TestTensor out(DType::f32, Shape{50'000, 3});
    call(Op::take, {&x, &index}, out, {0});
    for (std::int64_t i = 0; i < 150'000; ++i) ASSERT_TRUE(same(out, i, x, index.get<std::int32_t>(i / 3) * 3 + i % 3));
  }
}

TEST(Take, APositionOutOfRangeIsAnError) {
  TestTensor x(DType::f32, Shape{4, 10}), index(DType::i64, Shape{3}), out(DType::f32, Shape{4, 3});
  index.set<std::int64_t>(0, 9), index.set<std::int64_t>(1, -11), index.set<std::int64_t>(2, 10);
  try {
    call(Op::take, {&x, &index}, out, {1});
    FAIL() << "-11 is out of range";
  } catch (const IndexError& e) {
    EXPECT_EQ(e.code(), 1204);
    EXPECT_STREQ(e.what(),
                 "FM1204 IndexError: take: position -11 leaves axis 1 of size 10\n"
                 "  x     f32[4, 10]   axis 1 is 10\n"
                 "  index i64[3]       element 1 is -11");
  }
  // Those of a single row are read a part at a time.
  TestTensor line(DType::f32, Shape{10}), many(DType::i64, Shape{9'000}), taken(DType::f32, Shape{9'000});
  for (std::int64_t i = 0; i < 9'000; ++i) many.set(i, i % 20 - 10);
  call(Op::take, {&line, &many}, taken, {0});
  for (const std::int64_t bad : {8'999, 5'000}) {
    many.set<std::int64_t>(bad, 10);
    try {
      call(Op::take, {&line, &many}, taken, {0});
      FAIL() << "10 is out of range";
    } catch (const IndexError& e) {
      EXPECT_NE(std::string(e.what()).find("element " + std::to_string(bad) + " is 10"), std::string::npos) << e.what();
    }
  }
  TestTensor huge(DType::u64, Shape{1});
  huge.set(0, ~std::uint64_t{0});
  TestTensor one(DType::f32, Shape{4, 1});
  EXPECT_THROW(call(Op::take, {&x, &huge}, one, {1}), IndexError);
}

template <class T> void check_integer_index_add(DType dtype, std::mt19937_64& random) {
  const Shape sizes{3, 6, 4};
  TestTensor x(dtype, sizes, {2, 1, 0}), index(DType::i8, Shape{20}), source(dtype, Shape{3, 20, 4}, {0, 2, 1}),
      out(dtype, sizes);
  x.fill(random), source.fill(random);
  for (std::int64_t i = 0; i < 20; ++i) index.set(i, static_cast<std::int8_t>(random() % 12) - 6);
  call(Op::index_add, {&x, &index, &source}, out, {1});
  for (std::int64_t o = 0; o < 3; ++o)
    for (std::int64_t r = 0; r < 6; ++r)
      for (std::int64_t j = 0; j < 4; ++j) {
        auto expected = static_cast<std::uint64_t>(x.get<T>((o * 6 + r) * 4 + j));
        for (std::int64_t i = 0; i < 20; ++i)
          if ((index.get<std::int8_t>(i) + 6) % 6 == r)
            expected += static_cast<std::uint64_t>(source.get<T>((o * 20 + i) * 4 + j));
        ASSERT_EQ(out.get<T>((o * 6 + r) * 4 + j), static_cast<T>(expected)) << name(dtype) << " seed " << seed();
      }
}

TEST(IndexAdd, IntegersWrap) {
  std::mt19937_64 random(seed());
  for (const DType dtype :
       {DType::u8, DType::u16, DType::u32, DType::u64, DType::i8, DType::i16, DType::i32, DType::i64})
    visit_compute(dtype, [&]<class T>() { check_integer_index_add<T>(dtype, random); });
}

/// Adds in order of positions, in float or double.
template <class T, class Read> std::vector<T> index_add_in_order(std::int64_t rows, std::int64_t inner,
                                                                 const std::vector<std::int64_t>& positions,
                                                                 TestTensor& x, TestTensor& source, Read read) {
  std::vector<T> sums(static_cast<std::size_t>(rows * inner));
  for (std::int64_t i = 0; i < rows * inner; ++i) sums[static_cast<std::size_t>(i)] = read(x, i);
  for (std::size_t p = 0; p < positions.size(); ++p)
    for (std::int64_t j = 0; j < inner; ++j)
      sums[static_cast<std::size_t>(positions[p] * inner + j)] +=
          read(source, static_cast<std::int64_t>(p) * inner + j);
  return sums;
}

TEST(IndexAdd, FloatsAreAddedInOrderOfPositionsForAnyNumberOfThreads) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  for (const std::int64_t inner : {std::int64_t{1}, std::int64_t{5}, std::int64_t{300}}) {
    const std::int64_t rows = 40, count = 3000;
    std::vector<std::int64_t> positions;
    TestTensor index(DType::i64, Shape{count});
    for (std::int64_t i = 0; i < count; ++i) {
      positions.push_back(static_cast<std::int64_t>(random() % 40));
      index.set(i, positions.back());
    }
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      TestTensor x(dtype, Shape{rows, inner}), source(dtype, Shape{count, inner}, {1, 0});
      for (TestTensor* a : {&x, &source})
        for (std::int64_t i = 0; i < element_count(a->sizes); ++i) {
          const double v = normal(random);
          if (dtype == DType::f64)
            a->set(i, v);
          else if (dtype == DType::f32)
            a->set(i, static_cast<float>(v));
          else if (dtype == DType::f16)
            a->set(i, to_float16(v));
          else
            a->set(i, to_bfloat16(v));
        }
      const auto read = [&](TestTensor& a, std::int64_t i) -> double {
        if (dtype == DType::f64) return a.get<double>(i);
        if (dtype == DType::f32) return a.get<float>(i);
        return dtype == DType::f16 ? to_float(a.get<Float16>(i)) : to_float(a.get<BFloat16>(i));
      };
      const auto as_float = [&](TestTensor& a, std::int64_t i) { return static_cast<float>(read(a, i)); };
      const auto doubles = index_add_in_order<double>(rows, inner, positions, x, source, read);
      const auto floats = index_add_in_order<float>(rows, inner, positions, x, source, as_float);
      for (const int n : {1, 2, 5}) {
        const ThreadCount threads(n);
        TestTensor out(dtype, Shape{rows, inner});
        call(Op::index_add, {&x, &index, &source}, out, {0});
        for (std::int64_t i = 0; i < rows * inner; ++i) {
          const float f = floats[static_cast<std::size_t>(i)];
          if (dtype == DType::f64)
            ASSERT_EQ(out.get<double>(i), doubles[static_cast<std::size_t>(i)]);
          else if (dtype == DType::f32)
            ASSERT_EQ(out.get<float>(i), f);
          else if (dtype == DType::f16)
            ASSERT_EQ(out.get<Float16>(i).bits, to_float16(f).bits);
          else
            ASSERT_EQ(out.get<BFloat16>(i).bits, to_bfloat16(f).bits) << "seed " << seed();
        }
      }
    }
  }
}

TEST(IndexAdd, APositionOutOfRangeIsAnError) {
  TestTensor x(DType::f32, Shape{4}), index(DType::u8, Shape{2}), source(DType::f32, Shape{2}),
      out(DType::f32, Shape{4});
  index.set<std::uint8_t>(0, 3), index.set<std::uint8_t>(1, 4);
  try {
    call(Op::index_add, {&x, &index, &source}, out, {0});
    FAIL() << "4 is out of range";
  } catch (const IndexError& e) {
    EXPECT_STREQ(e.what(),
                 "FM1204 IndexError: index_add: position 4 leaves axis 0 of size 4\n"
                 "  x      f32[4]   axis 0 is 4\n"
                 "  index  u8[2]    element 1 is 4\n"
                 "  source f32[2]");
  }
}

TEST(Update, ReplacesWhatAViewSelects) {
  std::mt19937_64 random(seed());
  for (const DType dtype : kOneOfEachSize) {
    TestTensor x(dtype, Shape{6, 8}, {1, 0}), values(dtype, Shape{3, 4}, {1, 0}), out(dtype, Shape{6, 8});
    x.fill(random), values.fill(random);
    // Rows 5, 3, 1 and columns 1, 3, 5, 7.
    call(Op::update, {&x, &values}, out, {5 * 8 + 1, -16, 2});
    for (std::int64_t i = 0; i < 6; ++i)
      for (std::int64_t j = 0; j < 8; ++j) {
        if (i % 2 == 1 && j % 2 == 1)
          ASSERT_TRUE(same(out, i * 8 + j, values, (5 - i) / 2 * 4 + j / 2));
        else
          ASSERT_TRUE(same(out, i * 8 + j, x, i * 8 + j));
      }
  }
}

/// Of large values only what they leave is copied.
TEST(Update, WritesBoxes) {
  std::mt19937_64 random(seed());
  const Shape whole{3, 70, 90}, begins[] = {{0, 0, 0}, {1, 0, 0}, {0, 3, 0}, {2, 3, 5}, {1, 20, 30}};
  for (const DType dtype : kOneOfEachSize)
    for (const std::vector<unsigned>& order : {std::vector<unsigned>{0, 1, 2}, {0, 2, 1}, {2, 1, 0}})
      for (const Shape& begin : begins) {
        const Shape part{3 - begin[0], 70 - 2 * begin[1], 90 - 2 * begin[2]};
        TestTensor x(dtype, whole, order), values(dtype, part, order), out(dtype, whole);
        x.fill(random), values.fill(random);
        call(Op::update, {&x, &values}, out, {(begin[0] * 70 + begin[1]) * 90 + begin[2], 70 * 90, 90, 1});
        for (std::int64_t i = 0; i < element_count(whole); ++i) {
          const std::int64_t a = i / (70 * 90) - begin[0], b = i / 90 % 70 - begin[1], c = i % 90 - begin[2];
          if (a >= 0 && a < part[0] && b >= 0 && b < part[1] && c >= 0 && c < part[2])
            ASSERT_TRUE(same(out, i, values, (a * part[1] + b) * part[2] + c));
          else
            ASSERT_TRUE(same(out, i, x, i));
        }
      }
}

/// Control flow and what goes with it runs in the frontend.
const Op kRunByKernels[] = {
#define FERMATA_UNARY(...)
#define FERMATA_IRREGULAR(name, ...) Op::name,
#define FERMATA_SCAN(name, ...) Op::name,
#include "ir/ops/collectives.def"
#include "ir/ops/complex.def"
#include "ir/ops/fft.def"
#include "ir/ops/irregular.def"
#include "ir/ops/linalg.def"
#include "ir/ops/neural.def"
#include "ir/ops/ordering.def"
#undef FERMATA_UNARY
#undef FERMATA_IRREGULAR
#undef FERMATA_SCAN
};

TEST(IrregularKernel, EveryOpHasOne) {
  for (const Op op : kRunByKernels) {
    if (op == Op::input || is_view(op)) continue;
    const BackendCell* const cell = backend_cell(op, BackendKey::cpu);
    ASSERT_NE(cell, nullptr) << name(op);
    EXPECT_TRUE(std::ranges::any_of(cell->variants, [](const KernelVariant& v) { return v.call != nullptr; }))
        << name(op);
  }
}

bool is_nan16(std::uint16_t bits, std::uint16_t infinity) { return (bits & 0x7fff) > infinity; }

TEST(NarrowFloat, WideningGivesTheBitsOfTheContract) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(widen_float16(bits)), std::bit_cast<std::uint32_t>(to_float(Float16{bits})))
        << i;
    if (is_nan16(bits, 0x7f80)) continue;  // a signaling NaN may have been made quiet on the way
    ASSERT_EQ(widen_bfloat16(bits), to_float(BFloat16{bits})) << i;
  }
}

TEST(NarrowFloat, NarrowingGivesTheBitsOfTheContract) {
  const auto check = [](std::uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    ASSERT_EQ(narrow_float16(x), to_float16(x).bits) << std::hex << bits;
    ASSERT_EQ(narrow_bfloat16(x), to_bfloat16(x).bits) << std::hex << bits;
  };
  // Around every f16 and bf16, and half way between neighbors.
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) check(i << 16 | low);
    const auto f = std::bit_cast<std::uint32_t>(to_float(Float16{static_cast<std::uint16_t>(i)}));
    for (const std::uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu}) check(f + low);
  }
  for (int shift = 0; shift < 24; ++shift)  // halves of the smallest subnormals
    for (const float x : {0x1p-25f, 0x1.8p-25f, 0x1.000002p-25f, 0x1.8p-24f})
      check(std::bit_cast<std::uint32_t>(std::ldexp(x, -shift)));
  std::mt19937_64 random(seed());
  for (int i = 0; i < 300'000; ++i) check(static_cast<std::uint32_t>(random()));
}

}  // namespace
}  // namespace fermata

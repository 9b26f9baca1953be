// Scans: every kernel and every loop gives the bits that the definition in codegen_cpu/irregular/scan.cpp does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "codegen_cpu/irregular/scan_loops.h"
#include "tests/codegen_cpu/test_tensor.h"

namespace fermata {
namespace {

constexpr std::int64_t kBlock = 512;

template <class T> T combined(Op op, T a, T b) {
  using U = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  switch (op) {
    case Op::cumulative_sum: return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case Op::cumulative_prod: return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    case Op::cumulative_max: return a != a ? a : a > b ? a : b;
    default: return a != a ? a : a < b ? a : b;
  }
}

template <class T> std::vector<T> scanned(Op op, const std::vector<T>& x) {
  std::vector<T> out(x.size());
  T before{}, inside{};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t in_block = i % kBlock;
    if (in_block == 0 && i > 0) before = i == kBlock ? inside : combined(op, before, inside);
    inside = in_block == 0 ? x[i] : combined(op, inside, x[i]);
    out[i] = i < kBlock ? inside : combined(op, before, inside);
  }
  return out;
}

template <class T> std::vector<T> numbers(Op op, std::int64_t count, std::mt19937_64& random, bool special) {
  std::vector<T> x(static_cast<std::size_t>(count));
  for (T& v : x) {
    const std::int64_t r = static_cast<std::int64_t>(random() % 2001) - 1000;
    if constexpr (std::is_integral_v<T>) {
      v = op == Op::cumulative_prod ? static_cast<T>(random() | 1)
          : special                 ? static_cast<T>(random())
                                    : static_cast<T>(r);
    } else {
      v = op == Op::cumulative_prod ? static_cast<T>(1 + 1e-4 * static_cast<double>(r))
                                    : static_cast<T>(0.37 * static_cast<double>(r));
      if (!special) continue;
      if (r % 5 == 0) v = r % 2 == 0 ? T(0) : -T(0);
      if (r == 1000) v = std::numeric_limits<T>::infinity();
      if (r == 999) v = -std::numeric_limits<T>::infinity();
      if (r == 998) v = std::numeric_limits<T>::quiet_NaN();
    }
  }
  return x;
}

template <class T> bool same_bits(T a, T b) { return std::memcmp(&a, &b, sizeof(T)) == 0 || (a != a && b != b); }

template <class T>
void check(Op op, DType dtype, const Shape& sizes, std::int64_t axis, bool dense, std::mt19937_64& random) {
  TestTensor x = dense ? TestTensor(dtype, sizes) : TestTensor(dtype, sizes, {1, 0}), out(dtype, sizes);
  const auto size = sizes[static_cast<std::size_t>(axis)], lines = element_count(sizes) / size;
  const auto number = [&](std::int64_t line, std::int64_t i) { return axis == 1 ? line * size + i : i * lines + line; };
  std::vector<std::vector<T>> expected;
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::vector<T> values = numbers<T>(op, size, random, line % 3 == 1);
    for (std::int64_t i = 0; i < size; ++i) x.set(number(line, i), values[static_cast<std::size_t>(i)]);
    expected.push_back(scanned(op, values));
  }
  call(op, {&x}, out, {axis});
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t i = 0; i < size; ++i)
      ASSERT_TRUE(
          same_bits(out.get<T>(number(line, i)), expected[static_cast<std::size_t>(line)][static_cast<std::size_t>(i)]))
          << name(op) << " " << name(dtype) << " line " << line << " of " << lines << ", element " << i << " of "
          << size << ", axis " << axis << ", dense " << dense << ", seed " << seed();
}

void check_all_dtypes(const Shape& sizes, std::int64_t axis, bool dense, std::mt19937_64& random) {
  for (const Op op : {Op::cumulative_sum, Op::cumulative_prod, Op::cumulative_max, Op::cumulative_min}) {
    const bool sums = op == Op::cumulative_sum || op == Op::cumulative_prod;
    check<float>(op, DType::f32, sizes, axis, dense, random);
    check<double>(op, DType::f64, sizes, axis, dense, random);
    check<std::int64_t>(op, DType::i64, sizes, axis, dense, random);
    check<std::uint64_t>(op, DType::u64, sizes, axis, dense, random);
    if (sums) continue;
    check<std::int32_t>(op, DType::i32, sizes, axis, dense, random);
    check<std::uint32_t>(op, DType::u32, sizes, axis, dense, random);
    check<std::int16_t>(op, DType::i16, sizes, axis, dense, random);
    check<std::uint8_t>(op, DType::u8, sizes, axis, dense, random);
  }
}

TEST(Scan, GivesTheBitsOfItsDefinition) {
  std::mt19937_64 random(seed());
  for (const int count : {1, 3}) {
    const ThreadCount threads(count);
    for (const std::int64_t size : {1, 2, 7, 16, 17, 30, 31, 32, 100, 511, 512, 513, 1000, 2048, 4097})
      for (const std::int64_t lines : {1, 2, 5, 8, 16, 19, 40})
        check_all_dtypes(Shape{lines, size}, 1, size % 2 == 0 || lines % 2 == 0, random);
    for (const std::int64_t size : {1, 16, 40, 1100})
      for (const std::int64_t lines : {2, 3, 16, 70}) check_all_dtypes(Shape{size, lines}, 0, lines == 70, random);
  }
}

TEST(Scan, LongLinesAreSharedByThreads) {
  std::mt19937_64 random(seed());
  for (const int count : {1, 2, 4}) {
    const ThreadCount threads(count);
    for (const std::int64_t size : {32'768, 100'001}) check_all_dtypes(Shape{1, size}, 1, true, random);
    check_all_dtypes(Shape{3, 40'000}, 1, false, random);
  }
}

template <class T> void check_line(typename ScanLoops<T>::Line line, Op op, std::mt19937_64& random) {
  if (line == nullptr) return;
  for (const std::int64_t size : {1, 3, 16, 31, 200})
    for (const bool follows : {false, true}) {
      std::vector<T> x = numbers<T>(op, size, random, size % 2 == 1), out(x.size() + 1, T(7));
      const T before = numbers<T>(op, 1, random, false)[0];
      const T last = line(x.data(), out.data(), size, follows ? &before : nullptr);
      T sum = follows ? before : x[0];
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (follows || i > 0) sum = combined(op, sum, x[i]);
        ASSERT_TRUE(same_bits(out[i], sum)) << name(op) << " element " << i << " of " << size << ", seed " << seed();
      }
      EXPECT_TRUE(same_bits(last, sum));
      EXPECT_EQ(out.back(), T(7));
    }
}

template <class T> void check_sides(const ScanLoops<T>& loops, Op op, std::mt19937_64& random) {
  const auto scan = op == Op::cumulative_sum ? loops.sum_sides : loops.prod_sides;
  if (scan == nullptr) return;
  for (const std::int64_t size : {1, 3, 4, 7, 8, 15, 16, 17, 30, 33, 512}) {
    std::vector<std::vector<T>> x, out;
    std::vector<const T*> from;
    std::vector<T*> to;
    for (std::int64_t side = 0; side < loops.sides; ++side) {
      x.push_back(numbers<T>(op, size, random, side == 2));
      out.emplace_back(x.back().size() + 1, T(7));
    }
    for (std::size_t side = 0; side < x.size(); ++side) from.push_back(x[side].data()), to.push_back(out[side].data());
    scan(from.data(), to.data(), size);
    for (std::size_t side = 0; side < x.size(); ++side) {
      const std::vector<T> expected = scanned(op, x[side]);
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_TRUE(same_bits(out[side][i], expected[i]))
            << name(op) << " side " << side << ", element " << i << " of " << size << ", seed " << seed();
      EXPECT_EQ(out[side].back(), T(7));
    }
  }
}

template <class T> void check_loops(const ScanLoops<T>& loops, std::mt19937_64& random) {
  check_line<T>(loops.sum_line, Op::cumulative_sum, random);
  check_line<T>(loops.prod_line, Op::cumulative_prod, random);
  check_line<T>(loops.max_line, Op::cumulative_max, random);
  check_line<T>(loops.min_line, Op::cumulative_min, random);
  check_sides<T>(loops, Op::cumulative_sum, random);
  check_sides<T>(loops, Op::cumulative_prod, random);
}

TEST(Scan, LoopsOfEveryInstructionSetAgree) {
  std::mt19937_64 random(seed());
  std::vector<const ScanLoopTable*> all = {&kScanLoopsBaseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&kScanLoopsAvx2);
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    all.push_back(&kScanLoopsAvx512);
#endif
  for (const ScanLoopTable* const table : all) {
    check_loops<std::uint64_t>(*table, random), check_loops<std::int32_t>(*table, random);
    check_loops<std::int64_t>(*table, random), check_loops<float>(*table, random), check_loops<double>(*table, random);
  }
}

}  // namespace
}  // namespace fermata

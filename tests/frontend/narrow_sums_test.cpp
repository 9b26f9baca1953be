// Sums of bytes, of short integers and of masks, whose lanes are narrow in compiled code: extremes, and lengths around
// those of vectors and blocks, in every way that programs run.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "fermata/fermata.h"
#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

constexpr std::int64_t kLengths[] = {1, 7, 31, 32, 33, 63, 64, 65, 127, 200, 1700, 8191, 8192, 8193, 20'000};

std::vector<std::int64_t> integers(const Tensor& x) { return astype(x, DType::i64).to_vector<std::int64_t>(); }

TEST(NarrowSums, OfTheLargestAndTheLeastNumbersAreExact) {
  const auto check = [](DType dtype, std::int64_t extreme) {
    for (const std::int64_t length : kLengths) {
      const Tensor x = full({3, length}, extreme, dtype).sync();
      const auto results = in_every_way([&] { return std::vector{sum(bitwise_or(x, 0), 1), sum(bitwise_or(x, 0))}; });
      for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way << " " << name(dtype);
      EXPECT_EQ(integers(sum(bitwise_or(x, 0), 1)), std::vector<std::int64_t>(3, extreme * length))
          << name(dtype) << " " << length;
    }
  };
  check(DType::u8, 255);
  check(DType::i8, -128);
  check(DType::i8, 127);
  check(DType::u16, 65535);
  check(DType::i16, -32768);
  check(DType::i16, 32767);
}

TEST(NarrowSums, OfMasksCount) {
  for (const std::int64_t length : kLengths) {
    const Tensor x = arange(3 * length).reshape({3, length}) % 7;
    const Tensor floats = x.astype(DType::f32).sync(), bytes = x.astype(DType::u8).sync();
    const auto results = in_every_way([&] {
      return std::vector{sum(floats > 2, 1),
                         sum(bytes > 2, 1),
                         count_nonzero(bytes, {1}),
                         sum((bytes == 3) | (floats < 2)),
                         sum(bytes > 200, 1),
                         sum(bytes <= 7, 1),
                         sum(bytes, {1}) + sum(bytes > 3, 1).astype(DType::u64) * 2};
    });
    for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way << " " << length;
    EXPECT_EQ(integers(sum(bytes <= 7, 1)), std::vector<std::int64_t>(3, length));
  }
}

TEST(NarrowSums, StandBesideOtherReductions) {
  for (const std::int64_t length : {33, 500, 9000}) {
    const Tensor x = (arange(4 * length).reshape({4, length}) % 11 - 5).astype(DType::f32).sync();
    const Tensor bytes = (x + 5).astype(DType::u8).sync();
    const auto results = in_every_way([&] {
      const Tensor mask = x > mean(x, 1, true);
      return std::vector{sum(where(mask, x, 0), 1) / sum(mask, 1).astype(DType::f32),
                         max(x, 1) + sum(bytes, 1).astype(DType::f32),
                         (x > 0).astype(DType::u8) * sum(x > 0, 1, true).astype(DType::u8),
                         sum(x.astype(DType::i32), 1, false) - sum(bytes, 1).astype(DType::i64)};
    });
    for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way << " " << length;
  }
}

TEST(NarrowSums, OfSeveralAxesAndInOtherDTypes) {
  const Tensor x = randint(0, 256, {37, 20, 45}).astype(DType::u8).sync(), y = (x > 99).sync();
  const auto results = in_every_way([&] {
    return std::vector{sum(x ^ 1, {0, 2}), sum(x ^ 1, {1, 2}), sum(y & (x < 200)),
                       sum(x ^ 1, 0),      sum(x.mT() ^ 1, 2), sum((x >> 1).astype(DType::i16), 2)};
  });
  for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way;
}

}  // namespace
}  // namespace fermata

// Rows of a few elements: of parts of images, exchanged or repeated, and their sums, in every way that programs run.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "fermata/fermata.h"
#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

constexpr DType kDTypes[] = {DType::u8, DType::i16, DType::bf16, DType::f32, DType::f64};

TEST(ShortRows, OfPartsAndExchangedRowsAreComputedAlike) {
  for (const DType dtype : kDTypes)
    for (const std::int64_t channels : {1, 3, 4, 7}) {
      const Tensor image = randint(0, 200, {5, 37, 41, channels}).astype(dtype).sync();
      const Tensor each = randint(0, 50, {channels}).astype(dtype).sync();
      const Tensor chosen = (randint(0, 2, {5, 1, 1, 1}) == 1).sync();
      const auto results = in_every_way([&] {
        return std::vector{where(chosen, flip(image, {2}), image),
                           flip(image, {1, 2}) + each,
                           image.slice(1, 1, 36).slice(2, 2, 40) - each,
                           image.slice(1, 0, kNone, 2).slice(2, 40, kNone, -1) + each,
                           permute(image, {0, 2, 1, 3}) * each,
                           expand_dims(image.select(1, 3), 1) + image,
                           flip(image, {3}) - each,
                           flip(image, {2, 3}) + image,
                           copy(flip(image, {1, 3})),
                           copy(flip(image, {2})),
                           copy(image.slice(3, 0, kNone, 3)),
                           copy(image.slice(2, 40, kNone, -3))};
      });
      for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way << " " << name(dtype);
    }
}

TEST(ShortRows, ThatAreExchangedAreTheSameElements) {
  const Tensor image = arange(4 * 60 * 3).reshape({4, 60, 3}).astype(DType::u8).sync();
  const auto given = image.to_vector<std::uint8_t>(), got = copy(flip(image, {1})).to_vector<std::uint8_t>();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::size_t place = i / 3 % 60, mirrored = i + (59 - place) * 3 - place * 3;
    ASSERT_EQ(got[i], given[mirrored]) << i;
  }
}

TEST(ShortRows, OfIntegersHaveExactSums) {
  std::mt19937 random(77);
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8, DType::u16, DType::i16, DType::u32, DType::i32})
    for (const std::int64_t size : {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129}) {
      const std::int64_t rows = 1 + static_cast<std::int64_t>(random() % 70);
      const Tensor x = randint(-100, 100, {rows, size}).astype(dtype).sync();
      const auto elements = astype(x, DType::i64).to_vector<std::int64_t>();
      std::vector<std::int64_t> wanted(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < elements.size(); ++i) wanted[i / static_cast<std::size_t>(size)] += elements[i];
      for (const Mode mode : {Mode::eager, Mode::compiled}) {
        const ModeGuard guard(mode);
        EXPECT_EQ(astype(sum(x, 1), DType::i64).to_vector<std::int64_t>(), wanted) << name(dtype) << " " << size;
      }
    }
}

TEST(TopK, OfManyIsTheBeginningOfASort) {
  for (const std::int64_t size : {5, 70, 300, 515, 1030, 3000})
    for (const std::int64_t k : {std::int64_t{1}, size / 60 + 1, size / 3 + 1, size})
      for (const bool largest : {false, true}) {
        const Tensor x = randint(-40, 40, {7, size}).astype(DType::f32).sync();
        const TopK top = topk(x, k, 1, largest);
        EXPECT_EQ(top.indices.to_vector<std::int64_t>(),
                  argsort(x, 1, largest).slice(1, 0, k).to_vector<std::int64_t>())
            << size << " " << k;
      }
}

}  // namespace
}  // namespace fermata

// argmax and argmin of rows of any length, with ties, infinities and NaN, against a loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "fermata/fermata.h"
#include "fermata/host_view.h"

namespace fermata {
namespace {

template <class T> std::int64_t wanted_position(const T* row, std::int64_t size, bool largest) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < size; ++i) {
    const bool is_nan = row[i] != row[i], best_is_nan = row[best] != row[best];
    if (!best_is_nan && (is_nan || (largest ? row[i] > row[best] : row[i] < row[best]))) best = i;
  }
  return best;
}

template <class T> class PositionsOfExtremes : public ::testing::Test {};
using ElementTypes = ::testing::Types<std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, float, double>;
TYPED_TEST_SUITE(PositionsOfExtremes, ElementTypes);

TYPED_TEST(PositionsOfExtremes, AreThoseOfTheFirst) {
  using T = TypeParam;
  std::mt19937 random(3);
  for (const std::int64_t length :
       {1, 2, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 100, 129, 513, 8191, 8193})
    for (const std::int64_t rows : {1, 5, 33, 1100}) {
      if (length * rows > 1'000'000) continue;
      std::vector<T> elements(static_cast<std::size_t>(length * rows));
      for (T& e : elements) {
        const auto draw = random();
        e = static_cast<T>(draw % 7);
        if constexpr (std::is_floating_point_v<T>) {
          if (draw >> 8 & 1) e = -e;
          if ((draw >> 9) % 40 == 0) e = std::numeric_limits<T>::quiet_NaN();
          if ((draw >> 9) % 11 == 1) e = -std::numeric_limits<T>::infinity();
        } else if ((draw >> 9) % 5 == 0) {
          e = (draw >> 8 & 1) != 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
        }
      }
      if (rows > 2)  // a row of nothing but the least there is
        std::fill_n(elements.begin() + length, length,
                    std::is_floating_point_v<T> ? static_cast<T>(-INFINITY) : std::numeric_limits<T>::lowest());
      const Tensor x = borrow(std::span<const T>(elements), {rows, length});
      for (const Mode mode : {Mode::eager, Mode::compiled})
        for (const bool largest : {true, false}) {
          const ModeGuard guard(mode);
          const auto got = (largest ? argmax(x, 1) : argmin(x, 1)).template to_vector<std::int64_t>();
          for (std::int64_t r = 0; r < rows; ++r)
            ASSERT_EQ(got[static_cast<std::size_t>(r)], wanted_position(elements.data() + r * length, length, largest))
                << (largest ? "argmax" : "argmin") << " of row " << r << " of " << rows << ", " << length
                << " elements";
        }
    }
}

}  // namespace
}  // namespace fermata

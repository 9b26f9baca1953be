// Kernels that read parts along their rows: rolls, pads, halves that change places, triangles. Rows are shorter than a
// vector, and as long as several; parts end anywhere in them.
#include <fermata/fermata.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

Tensor numbers(const Shape& shape, DType dtype) {
  const ModeGuard eager(Mode::eager);
  const std::int64_t count = element_count(shape);
  return astype(remainder(arange(count) * 7, 101) - (is_signed(dtype) ? 50 : 0), dtype)
      .reshape(IntegerList(std::vector<std::int64_t>(shape.begin(), shape.end())));
}
void expect_same_in_every_way(const TestProgram& program) {
  const auto results = in_every_way(program);
  for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way;
}

/// The sum; of bool, whether one of them is true.
Tensor plus(const Tensor& x, const Tensor& y) { return x.dtype() == DType::boolean ? x ^ y : x + y; }
/// The same; complex numbers become their parts.
Tensor sum_of(const Tensor& x, const Tensor& y) {
  return is_complex(x.dtype()) ? concat({real(x + y), imag(x + y)}, -1) : plus(x, y);
}

Tensor real_parts(const Tensor& x) { return is_complex(x.dtype()) ? real(x) : x; }

constexpr DType kDTypes[] = {DType::u8, DType::i16, DType::f32, DType::f64, DType::boolean, DType::bf16, DType::c64};

class JoinedColumns : public ::testing::TestWithParam<DType> {};

TEST_P(JoinedColumns, RollsOfRowsOfAnyLength) {
  for (const int length : {1, 2, 15, 16, 17, 63, 64, 65, 130, 300}) {
    const Tensor x = numbers({5, length}, GetParam());
    expect_same_in_every_way([&] {
      return std::vector{sum_of(roll(x, 1, 1), roll(x, -1, 1)), sum_of(roll(x, length / 2, 1), roll(x, 1, 0)),
                         sum_of(roll(roll(x, 3, 1), 1, 0), x)};
    });
  }
}

TEST_P(JoinedColumns, PartsOfRowsOfAnyLength) {
  for (const int length : {1, 3, 16, 40, 64, 100, 257}) {
    const Tensor x = numbers({4, length}, GetParam()), y = numbers({4, 2 * length + 3}, GetParam());
    expect_same_in_every_way([&] {
      const Tensor joined = concat({x, y, x}, 1);
      const auto doubled = [](const Tensor& t) { return sum_of(t, t); };
      return std::vector{doubled(joined), doubled(pad(x, {length / 3, 2, 1, 0})),
                         doubled(concat({y.slice(1, 5), x}, 1)), doubled(joined.slice(1, 1, kNone, 2)),
                         doubled(flip(joined, {1}))};
    });
  }
}

/// Results that lie element by element between each other, in programs that read none of them elsewhere: others are
/// copied.
TEST_P(JoinedColumns, StacksAlongTheLastAxis) {
  for (const int length : {1, 5, 16, 33, 64, 200})
    for (const int parts : {2, 3, 4, 5}) {
      const Tensor x = numbers({3, length}, GetParam()), y = numbers({3, length + 1}, GetParam()).slice(1, 1);
      const auto all = [&] {
        std::vector<Tensor> each{plus(x, y)};
        while (static_cast<int>(each.size()) < parts) each.push_back(plus(each.back(), each.size() % 2 == 0 ? x : y));
        std::ranges::rotate(each, each.begin() + 1);  // not in the order in which they are computed
        return each;
      };
      expect_same_in_every_way([&] { return std::vector{sum_of(stack(all(), -1), stack(all(), -1))}; });
      expect_same_in_every_way([&] { return std::vector{real_parts(stack(all(), -1))}; });
      expect_same_in_every_way([&] { return std::vector{real_parts(stack(all(), 1))}; });
    }
}

INSTANTIATE_TEST_SUITE_P(DTypes, JoinedColumns, ::testing::ValuesIn(kDTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(Triangles, OfRowsOfAnyLength) {
  for (const int length : {1, 2, 16, 17, 70, 200})
    for (const int k : {-3, 0, 2}) {
      const Tensor x = numbers({7, length}, DType::f32);
      expect_same_in_every_way([&] {
        const Tensor row = arange(7).unsqueeze(1), column = arange(length);
        return std::vector{triu(x, k) * 2, tril(x, k) + 1, softmax(where(column <= row + k, x, -1e9), 1),
                           where(row * 9 > column, x, where(column >= 5, x * 2, 0))};
      });
    }
}

}  // namespace
}  // namespace fermata

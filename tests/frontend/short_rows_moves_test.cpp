// Copies of short rows, elements that are repeated, positions, and conversions of floats to integers, whose kernels
// have cases for sizes: each against a loop over the elements, in both modes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "fermata/fermata.h"

namespace fermata {
namespace {

class ShortRowsMoves : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, ShortRowsMoves, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

using Ints = std::vector<std::int64_t>;
constexpr DType kOfEachSize[] = {DType::u8, DType::i16, DType::i32, DType::i64, DType::c128};

Tensor counted(const Shape& sizes, DType dtype) {
  Tensor x = reshape(arange(element_count(sizes)) % 251, sizes).astype(DType::u8).sync();
  return x.astype(dtype).sync();
}
std::vector<double> reals(const Tensor& x) { return real(x).astype(DType::f64).to_vector<double>(); }

TEST_P(ShortRowsMoves, repeats_each_element) {
  for (const DType dtype : kOfEachSize)
    for (const std::int64_t times : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
      const Tensor x = counted({5, 7, 3}, dtype);
      for (const std::int64_t axis : {0, 1, 2}) {
        const std::vector<double> got = reals(repeat(x, times, axis)), from = reals(x);
        const Shape sizes{axis == 0 ? 5 * times : 5, axis == 1 ? 7 * times : 7, axis == 2 ? 3 * times : 3};
        ASSERT_EQ(static_cast<std::int64_t>(got.size()), element_count(sizes));
        for (std::int64_t i = 0; i < element_count(sizes); ++i) {
          std::int64_t at[] = {i / (sizes[1] * sizes[2]), i / sizes[2] % sizes[1], i % sizes[2]};
          at[axis] /= times;
          ASSERT_EQ(got[static_cast<std::size_t>(i)], from[static_cast<std::size_t>((at[0] * 7 + at[1]) * 3 + at[2])])
              << name(dtype) << ", " << times << " times along axis " << axis << ", element " << i;
        }
      }
    }
}

TEST_P(ShortRowsMoves, tiles_and_reshapes_of_views_give_their_own_shape) {
  const Tensor x = counted({3, 5}, DType::i32);
  const Tensor tiled = tile(x, {2, 3});
  EXPECT_EQ(tiled.shape(), (Shape{6, 15}));
  const Ints got = tiled.to_vector<std::int64_t>(), from = x.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], from[i / 15 % 3 * 5 + i % 15 % 5]);

  const Tensor flat = reshape(transpose(x), {15});
  const Tensor again = flat + 0;  // read as well as given
  sync({flat, again});
  EXPECT_EQ(flat.shape(), (Shape{15}));
  for (std::size_t i = 0; i < 15; ++i) {
    ASSERT_EQ(flat.to_vector<std::int64_t>()[i], from[i % 3 * 5 + i / 3]);
    ASSERT_EQ(again.to_vector<std::int64_t>()[i], from[i % 3 * 5 + i / 3]);
  }
}

TEST_P(ShortRowsMoves, a_reshaped_view_and_its_copies_are_apart) {
  const Tensor x = counted({4, 6}, DType::f32);
  const Tensor a = reshape(transpose(x), {24}), b = reshape(transpose(x), {2, 12});
  sync({a, b});
  EXPECT_EQ(a.shape(), (Shape{24}));
  EXPECT_EQ(b.shape(), (Shape{2, 12}));
  EXPECT_EQ(reals(a), reals(b));
  a.assign(a * 2);
  EXPECT_NE(reals(a), reals(b));
}

TEST_P(ShortRowsMoves, reshapes_of_reshapes_give_the_last_shape) {
  const Tensor x = counted({4, 6}, DType::f32);
  const Tensor y = x * 2, flat = reshape(y, {24}), cube = reshape(flat, {2, 3, 4}), sums = sum(cube, 1);
  sync({y, flat, cube, sums});
  EXPECT_EQ(cube.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(reals(cube), reals(y));
  const std::vector<double> from = reals(x), got = reals(sums);
  for (std::size_t i = 0; i < 8; ++i) {
    const std::size_t first = i / 4 * 12 + i % 4;
    ASSERT_EQ(got[i], 2 * (from[first] + from[first + 4] + from[first + 8]));
  }
  const Tensor turned = reshape(reshape(transpose(x) + 0, {3, 8}), {12, 2});
  const Tensor viewed = reshape(reshape(transpose(x), {3, 8}), {12, 2});
  EXPECT_EQ(reals(turned), reals(viewed));
  EXPECT_EQ(reals(matmul(reshape(reshape(x * 1, {24}), {1, 4, 6}), reshape(reshape(x * 1, {24}), {1, 6, 4}))),
            reals(matmul(reshape(x, {1, 4, 6}), reshape(x, {1, 6, 4}))));
}

TEST_P(ShortRowsMoves, operands_that_repeat_in_every_row_may_join_rows) {
  for (const std::int64_t width : {2, 3, 5, 7, 15})
    for (const std::int64_t rows : {10, 8191, 20'001}) {
      const Tensor x = (reshape(arange(rows * width) % 97, {rows, width})).astype(DType::f32).sync();
      const Tensor u = x.astype(DType::u8).sync(), every = (arange(width) * 3).astype(DType::f32).sync();
      const Tensor one = tensor({2.0F}), alternate = (arange(2 * width)).astype(DType::f32).sync();
      const std::vector<double> a = reals((x - every) * one), b = reals(u.astype(DType::f32) + every * 2 + 1);
      const std::vector<double> c = reals(x * slice(alternate, 0, 0, kNone, 2)), from = reals(x);
      const std::vector<double> d = reals(where(x > every, x, every)), e = reals(maximum(u, every.astype(DType::u8)));
      for (std::int64_t i = 0; i < rows * width; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double column = static_cast<double>(i % width);
        ASSERT_EQ(a[at], (from[at] - 3 * column) * 2) << rows << "x" << width << " element " << i;
        ASSERT_EQ(b[at], from[at] + 6 * column + 1);
        ASSERT_EQ(c[at], from[at] * 2 * column);
        ASSERT_EQ(d[at], std::max(from[at], 3 * column));
        ASSERT_EQ(e[at], std::max(from[at], 3 * column));
      }
    }
}

TEST_P(ShortRowsMoves, rows_with_an_element_for_each) {
  for (const DType dtype : {DType::u8, DType::i16, DType::i32, DType::f64})
    for (const std::int64_t width : {2, 3, 4, 5, 8, 13, 16, 31})
      for (const std::int64_t rows : {20, 2049, 9001}) {
        const Tensor x = counted({rows, width}, dtype), wide = counted({rows, 2 * width + 1}, dtype);
        const Tensor ones[] = {counted({rows}, dtype), select(x, 1, width - 1), select(wide, 1, 1),
                               flip(counted({rows}, dtype), {0}), slice(counted({3 * rows}, dtype), 0, 1, kNone, 3)};
        const std::vector<double> from = reals(x);
        for (const Tensor& one : ones) {
          const std::vector<double> got = reals(minimum(x, expand_dims(one, 1))), each = reals(one);
          for (std::int64_t i = 0; i < rows * width; ++i)
            ASSERT_EQ(got[static_cast<std::size_t>(i)],
                      std::min(from[static_cast<std::size_t>(i)], each[static_cast<std::size_t>(i / width)]))
                << name(dtype) << ", " << rows << "x" << width << ", operand " << &one - ones << ", element " << i;
        }
      }
}

TEST_P(ShortRowsMoves, repeats_many_elements) {
  for (const DType dtype : kOfEachSize)
    for (const std::int64_t times : {2, 3, 4, 5, 8, 16, 33, 64})
      for (const std::int64_t count : {511, 5000})
        for (const std::int64_t step : {1, 2, 3, 17}) {
          const Tensor x = slice(counted({step * count}, dtype), 0, 0, kNone, step);
          const std::vector<double> got = reals(repeat(x, times, 0)), from = reals(x);
          for (std::int64_t i = 0; i < count * times; ++i)
            ASSERT_EQ(got[static_cast<std::size_t>(i)], from[static_cast<std::size_t>(i / times)])
                << name(dtype) << ", " << count << " elements " << step << " apart, " << times << " times, element "
                << i;
        }
}

TEST_P(ShortRowsMoves, finds_the_first_of_short_lines) {
  std::mt19937 random(11);
  for (const std::int64_t size : {5, 31, 32, 33, 64, 700})
    for (const std::int64_t k : {1, 5}) {
      std::vector<double> values(static_cast<std::size_t>(40 * size));
      for (double& v : values) v = static_cast<double>(random() % 200);
      const Tensor x = tensor(std::span<const double>(values), {40, size}).astype(DType::f32);
      const Ints got = topk(x, k).indices.to_vector<std::int64_t>();
      for (std::int64_t row = 0; row < 40; ++row) {
        Ints order(static_cast<std::size_t>(size));
        for (std::int64_t i = 0; i < size; ++i) order[static_cast<std::size_t>(i)] = i;
        const double* const line = values.data() + row * size;
        std::ranges::stable_sort(order, [&](std::int64_t i, std::int64_t j) { return line[i] > line[j]; });
        for (std::int64_t i = 0; i < k; ++i)
          ASSERT_EQ(got[static_cast<std::size_t>(row * k + i)], order[static_cast<std::size_t>(i)]) << size << " " << k;
      }
    }
}

TEST_P(ShortRowsMoves, copies_rows_of_a_few_elements) {
  for (const DType dtype : kOfEachSize)
    for (const std::int64_t width : {1, 2, 3, 5, 8, 15, 16, 17}) {
      const Tensor x = counted({9, width + 2}, dtype);
      const std::vector<double> from = reals(x);
      const auto element = [&](std::int64_t row, std::int64_t column) {
        return from[static_cast<std::size_t>(row * (width + 2) + column)];
      };
      const std::vector<double> part = reals(copy(slice(x, 1, 1, 1 + width)));
      const std::vector<double> turned = reals(copy(flip(slice(x, 1, 1, 1 + width), {1})));
      const std::vector<double> joined = reals(concat({slice(x, 1, 0, width), slice(x, 1, 1, 1 + width)}, 1));
      for (std::int64_t row = 0; row < 9; ++row)
        for (std::int64_t i = 0; i < width; ++i) {
          const auto at = static_cast<std::size_t>(row * width + i);
          ASSERT_EQ(part[at], element(row, 1 + i)) << name(dtype) << " " << width;
          ASSERT_EQ(turned[at], element(row, width - i)) << name(dtype) << " " << width;
          const auto both = static_cast<std::size_t>(row * 2 * width + i);
          ASSERT_EQ(joined[both], element(row, i)) << name(dtype) << " " << width;
          ASSERT_EQ(joined[both + static_cast<std::size_t>(width)], element(row, 1 + i)) << name(dtype) << " " << width;
        }
    }
}

TEST_P(ShortRowsMoves, adds_rows_of_every_width) {
  std::mt19937 random(7);
  for (const std::int64_t width : {1, 2, 3, 4, 5, 8, 16, 20})
    for (const DType dtype : {DType::u8, DType::i32, DType::f64}) {
      Ints at(50);
      for (std::int64_t& p : at) p = static_cast<std::int64_t>(random() % 13);
      const Tensor rows = counted({50, width}, DType::u8).astype(dtype), target = counted({13, width}, dtype);
      Ints wanted = target.astype(DType::i64).to_vector<std::int64_t>();
      const Ints source = rows.astype(DType::i64).to_vector<std::int64_t>();
      Ints alone(wanted.size(), 0);
      for (std::int64_t i = 0; i < 50; ++i)
        for (std::int64_t j = 0; j < width; ++j) {
          const auto to = static_cast<std::size_t>(at[static_cast<std::size_t>(i)] * width + j);
          wanted[to] += source[static_cast<std::size_t>(i * width + j)];
          alone[to] += source[static_cast<std::size_t>(i * width + j)];
        }
      const auto read = [&](const Tensor& x) { return x.astype(DType::i64).to_vector<std::int64_t>(); };
      if (dtype == DType::u8)
        for (Ints* all : {&wanted, &alone})
          for (std::int64_t& value : *all) value &= 255;
      const Tensor positions = tensor(std::span<const std::int64_t>(at), {50});
      ASSERT_EQ(read(index_add(target, positions, rows)), wanted) << name(dtype) << " " << width;
      ASSERT_EQ(read(index_add(zeros({13, width}, dtype), positions, rows)), alone) << name(dtype) << " " << width;
      ASSERT_EQ(read(index_add(target, positions - 13, rows)), wanted) << "counted from the end";
      const Tensor each = broadcast_to(expand_dims(positions, 1), {50, width});
      ASSERT_EQ(read(scatter_add(zeros({13, width}, dtype), each, rows)), alone) << name(dtype) << " " << width;
      ASSERT_EQ(read(scatter_add(target, each, rows)), wanted) << name(dtype) << " " << width;
      ASSERT_EQ(read(target), read(counted({13, width}, dtype))) << "the target stays as it is";
    }
}

TEST_P(ShortRowsMoves, zeros_that_are_read_again_stay_zeros) {
  const Tensor zero = zeros({4}), at = tensor({1, 1, 3});
  const Tensor sums = index_add(zero, at, ones({3})), other = zero + 1;
  sync({sums, other});
  EXPECT_EQ(sums.to_vector<float>(), (std::vector<float>{0, 2, 0, 1}));
  EXPECT_EQ(other.to_vector<float>(), (std::vector<float>{1, 1, 1, 1}));
  const Tensor padded = pad(ones({2, 2}), {1, 0, 0, 1});
  EXPECT_EQ(padded.shape(), (Shape{3, 3}));
  EXPECT_EQ(sum(padded).item<float>(), 4);
}

TEST_P(ShortRowsMoves, takes_along_short_lines) {
  std::mt19937 random(3);
  for (const std::int64_t size : {1, 2, 5, 63, 64, 65})
    for (const DType dtype : kOfEachSize) {
      const Tensor x = counted({70, size}, dtype);
      Ints at(static_cast<std::size_t>(70 * size));
      for (std::int64_t& p : at) p = static_cast<std::int64_t>(random() % static_cast<unsigned>(2 * size)) - size;
      const std::vector<double> from = reals(x),
                                got =
                                    reals(take_along_axis(x, tensor(std::span<const std::int64_t>(at), {70, size}), 1));
      for (std::int64_t i = 0; i < 70 * size; ++i) {
        const std::int64_t p = at[static_cast<std::size_t>(i)];
        ASSERT_EQ(got[static_cast<std::size_t>(i)],
                  from[static_cast<std::size_t>(i / size * size + (p < 0 ? p + size : p))]);
      }
    }
}

TEST_P(ShortRowsMoves, finds_places_in_sorted_values) {
  std::mt19937 random(5);
  for (const std::int64_t size : {0, 1, 2, 3, 7, 8, 100, 1000})
    for (const std::int64_t count : {0, 1, 7, 8, 9, 500})
      for (const DType dtype : {DType::i16, DType::i64, DType::f32, DType::f64}) {
        std::vector<double> sorted, wanted;
        for (std::int64_t i = 0; i < size; ++i) sorted.push_back(static_cast<double>(random() % 60) - 20);
        for (std::int64_t i = 0; i < count; ++i) wanted.push_back(static_cast<double>(random() % 70) - 25);
        std::ranges::sort(sorted);
        const Tensor x = tensor(std::span<const double>(sorted), {size}).astype(dtype);
        const Tensor values = tensor(std::span<const double>(wanted), {count}).astype(dtype);
        const Ints left = searchsorted(x, values).to_vector<std::int64_t>();
        const Ints right = searchsorted(x, values, Side::right).to_vector<std::int64_t>();
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_EQ(left[i], std::ranges::lower_bound(sorted, wanted[i]) - sorted.begin()) << size << " " << count;
          ASSERT_EQ(right[i], std::ranges::upper_bound(sorted, wanted[i]) - sorted.begin()) << size << " " << count;
        }
      }
}

TEST_P(ShortRowsMoves, finds_elements_that_are_not_zero) {
  std::mt19937 random(9);
  for (const std::int64_t count : {1, 100, 16384, 40000})
    for (const unsigned share : {0u, 1u, 50u, 100u}) {
      Ints values, wanted;
      for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(random() % 100 < share ? 3 : 0);
        if (values.back() != 0) wanted.push_back(i);
      }
      const Tensor x = tensor(std::span<const std::int64_t>(values), {count});
      ASSERT_EQ(flatnonzero(x).to_vector<std::int64_t>(), wanted);
      const std::int64_t some = static_cast<std::int64_t>(wanted.size()) / 2;
      ASSERT_EQ(flatnonzero(x, some).to_vector<std::int64_t>(), Ints(wanted.begin(), wanted.begin() + some));
    }
}

/// The integer nearest to a float, 0 of NaN.
template <class To> double saturated(double x) {
  if (std::isnan(x)) return 0;
  using Limits = std::numeric_limits<To>;
  if (x <= static_cast<double>(Limits::min())) return static_cast<double>(Limits::min());
  if (x >= static_cast<double>(Limits::max())) return static_cast<double>(Limits::max());
  return std::trunc(x);
}

TEST_P(ShortRowsMoves, floats_saturate_as_integers) {
  std::vector<double> given = {std::numeric_limits<double>::quiet_NaN(), INFINITY, -INFINITY, 0, -0.0, 0.99, -0.99};
  for (const int bits : {7, 8, 15, 16, 24, 31, 32, 53, 63, 64})
    for (const double off : {-1.0, -0.5, 0.0, 0.5, 1.0})
      for (const double sign : {-1.0, 1.0}) given.push_back(sign * (std::ldexp(1.0, bits) + off));
  for (const double scale : {2e9, 4e9, 9e18, 2e19}) given.insert(given.end(), {scale, -scale, 1.1 * scale});
  while (given.size() % 16 != 5) given.push_back(static_cast<double>(given.size()) - 0.25);
  for (const DType from : {DType::f32, DType::f64}) {
    const Tensor x = tensor(std::span<const double>(given), {static_cast<std::int64_t>(given.size())}).astype(from) * 1;
    const std::vector<double> exact = x.astype(DType::f64).to_vector<double>();
    const auto check = [&]<class To>(To, DType to) {
      const std::vector<To> got = x.astype(to).to_vector<To>();
      for (std::size_t i = 0; i < exact.size(); ++i)
        ASSERT_EQ(static_cast<double>(got[i]), saturated<To>(exact[i]))
            << name(from) << " to " << name(to) << ": " << exact[i];
    };
    check(std::int8_t{}, DType::i8), check(std::uint8_t{}, DType::u8);
    check(std::int16_t{}, DType::i16), check(std::uint16_t{}, DType::u16);
    check(std::int32_t{}, DType::i32), check(std::uint32_t{}, DType::u32);
    check(std::int64_t{}, DType::i64), check(std::uint64_t{}, DType::u64);
  }
}

}  // namespace
}  // namespace fermata

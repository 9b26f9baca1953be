// Compares the convolution kernels in codegen_cpu/library with each other and with sums in double precision.
#include "codegen_cpu/library/convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "codegen_cpu/library/matmul_amx.h"
#include "ir/channels_last.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

struct Sizes {
  std::int64_t images, channels, filters, groups;  // channels and filters of all groups
  std::vector<std::int64_t> in, taps, padding, padding_end, dilation;

  std::vector<std::int64_t> strides{};

  std::int64_t stride(std::size_t i) const { return strides.empty() ? 1 : strides[i]; }
  std::int64_t out(std::size_t i) const {
    return (in[i] + padding[i] + padding_end[i] - (taps[i] - 1) * dilation[i] - 1) / stride(i) + 1;
  }
};

/// Operands and results of a convolution.
struct Problem {
  explicit Problem(const Sizes& s, unsigned seed = 4711) : sizes(s) {
    const std::size_t axes = s.in.size();
    x_sizes = {s.images, s.channels}, w_sizes = {s.filters, s.channels / s.groups}, y_sizes = {s.images, s.filters};
    attributes = {s.groups};
    for (std::size_t i = 0; i < axes; ++i)
      x_sizes.push_back(s.in[i]), w_sizes.push_back(s.taps[i]), y_sizes.push_back(s.out(i));
    for (std::size_t i = 0; i < axes; ++i) attributes.push_back(s.stride(i));
    for (const auto* list : {&s.padding, &s.padding_end, &s.dilation})
      attributes.insert(attributes.end(), list->begin(), list->end());
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::vector<float>* numbers : {&x, &w, &y}) {
      const Shape& of = numbers == &x ? x_sizes : numbers == &w ? w_sizes : y_sizes;
      numbers->resize(static_cast<std::size_t>(element_count(of)));
      for (float& v : *numbers) v = normal(random);
    }
  }

  using Kernel = void (*)(const CallArgs&);
  std::vector<float> run(Op op, Kernel kernel, Epilogue* epilogue = nullptr) {
    const bool gradient = op == Op::convolution_data_gradient;
    std::vector<float> out((gradient ? x : y).size(), -1);
    call(op, out, [&](const CallArgs& args) {
      CallArgs told = args;
      told.epilogue = epilogue;
      kernel(told);
    });
    return out;
  }
  bool fits(Op op, bool (*kernel_fits)(const CallArgs&) = &convolution_amx_fits) {
    std::vector<float> out((op == Op::convolution_data_gradient ? x : y).size());
    bool does = false;
    call(op, out, [&](const CallArgs& args) { does = kernel_fits(args); });
    return does;
  }

  Sizes sizes;
  Shape x_sizes, w_sizes, y_sizes;
  std::vector<std::int64_t> attributes;
  std::vector<float> x, w, y;

 private:
  template <class F> void call(Op op, std::vector<float>& out, F&& f) {
    const bool gradient = op == Op::convolution_data_gradient;
    const Shape &in_sizes = gradient ? y_sizes : x_sizes, &out_sizes = gradient ? x_sizes : y_sizes;
    const Shape strides[] = {dense_strides(in_sizes), dense_strides(w_sizes), dense_strides(out_sizes)};
    const auto rank = static_cast<std::uint8_t>(in_sizes.rank());
    const TensorView inputs[] = {{(gradient ? y : x).data(), DType::f32, rank, in_sizes.data(), strides[0].data()},
                                 {w.data(), DType::f32, rank, w_sizes.data(), strides[1].data()}};
    const TensorView output{out.data(), DType::f32, rank, out_sizes.data(), strides[2].data()};
    f(CallArgs{op, inputs, {&output, 1}, attributes, {}});
  }
};

const Sizes kCases[] = {
    {2, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 64, 96, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {3, 40, 17, 1, {5, 33}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {1, 3, 5, 1, {9, 4}, {2, 3}, {0, 2}, {1, 0}, {1, 1}},
    {2, 33, 65, 1, {12, 10}, {3, 2}, {2, 0}, {1, 1}, {2, 3}},
    {1, 24, 36, 3, {6, 50}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 20, 31, 1, {70}, {5}, {2}, {2}, {1}},
    {1, 16, 16, 16, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 48, 40, 1, {40, 1}, {3, 1}, {1, 0}, {1, 0}, {1, 1}},
    {1, 320, 33, 1, {4, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // more than 256 places of k
};

std::string name(const Sizes& s) {
  std::string text = std::to_string(s.images) + "x" + std::to_string(s.channels) + "->" + std::to_string(s.filters) +
                     "/" + std::to_string(s.groups);
  for (std::size_t i = 0; i < s.in.size(); ++i) text += " " + std::to_string(s.in[i]) + "*" + std::to_string(s.taps[i]);
  return text;
}

/// The sum of the products' magnitudes bounds the error.
void expect_close(const std::vector<float>& got, const std::vector<float>& wanted, double scale,
                  const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 4e-7 * scale) << what << " at " << i;
}

class AmxConvolutions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_amx()) GTEST_SKIP() << "this processor has no tiles, or FERMATA_CPU turns them off";
    if (!splits_f32()) GTEST_SKIP() << "FERMATA_F32_PRODUCTS=fma";
  }
};

TEST_F(AmxConvolutions, AreSumsOfProducts) {
  for (const Sizes& s : kCases)
    for (const Op op : {Op::convolution, Op::convolution_data_gradient}) {
      Problem p(s);
      ASSERT_TRUE(p.fits(op)) << name(s);
      const double terms = static_cast<double>(element_count(p.w_sizes)) /
                           static_cast<double>(op == Op::convolution ? s.filters : s.channels / s.groups);
      expect_close(p.run(op, &convolution_amx), p.run(op, &convolution_portable), terms, name(s));
    }
}

TEST_F(AmxConvolutions, DoNotDependOnThreads) {
  const int before = thread_count();
  Problem p({3, 64, 64, 1, {30, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  set_thread_count(1);
  const std::vector<float> alone = p.run(Op::convolution, &convolution_amx);
  set_thread_count(3);
  EXPECT_EQ(p.run(Op::convolution, &convolution_amx), alone);
  set_thread_count(before);
}

TEST_F(AmxConvolutions, NumbersThatDoNotSplitKeepTheOtherKernel) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    Problem p({2, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
    p.x[5] = value;  // of the first image
    const std::vector<float> got = p.run(Op::convolution, &convolution_amx),
                             wanted = p.run(Op::convolution, &convolution_portable);
    for (std::size_t i = 0; i < got.size() / 2; ++i)
      ASSERT_TRUE(got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i]))) << value << " at " << i;
    for (std::size_t i = got.size() / 2; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-4);
    Problem q({1, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
    q.w[7] = value;
    const std::vector<float> other = q.run(Op::convolution, &convolution_amx),
                             same = q.run(Op::convolution, &convolution_portable);
    for (std::size_t i = 0; i < other.size(); ++i)
      ASSERT_TRUE(other[i] == same[i] || (std::isnan(other[i]) && std::isnan(same[i]))) << value << " at " << i;
  }
}

TEST_F(AmxConvolutions, RunAnEpilogueOnEveryPlaneOnce) {
  Problem p({3, 32, 40, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  std::vector<std::atomic<int>> rows(3 * 40 * 9);
  const auto count = [&](const ResultTile& tile) {
    EXPECT_EQ(tile.column_begin, 0);
    EXPECT_EQ(tile.column_end, 11);
    for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row) ++rows[static_cast<std::size_t>(row)];
  };
  Epilogue epilogue{count};
  p.run(Op::convolution, &convolution_amx, &epilogue);
  for (const auto& times : rows) ASSERT_EQ(times.load(), 1);
}

TEST_F(AmxConvolutions, LeaveTheRestToOthers) {
  Problem p({1, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  p.attributes[1] = 2;
  EXPECT_FALSE(p.fits(Op::convolution));
  Problem wide({1, 32, 32, 1, {8, 8}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});  // the gradient does not see the padding
  EXPECT_FALSE(wide.fits(Op::convolution_data_gradient));
}

const Sizes kDepthwiseCases[] = {
    {2, 3, 3, 3, {9, 33}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 5, 5, 5, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {3, 4, 4, 4, {7, 18}, {2, 5}, {0, 2}, {1, 3}, {1, 1}},
    {1, 2, 2, 2, {6, 70}, {3, 3}, {4, 5}, {4, 5}, {2, 3}},  // windows that see nothing but padding
    {2, 3, 3, 3, {200}, {31}, {15}, {15}, {1}},
    {1, 6, 6, 6, {13}, {4}, {3}, {0}, {2}},
    {1, 2, 2, 2, {40, 1}, {3, 1}, {1, 0}, {1, 0}, {1, 1}},
    {1, 2, 2, 2, {5, 6}, {1, 1}, {1, 2}, {1, 2}, {1, 1}},     // the gradient does not see the padding
    {1, 2, 2, 2, {41, 300}, {3, 5}, {1, 2}, {1, 2}, {1, 1}},  // more rows than stay in a cache
    {1, 1, 1, 1, {11, 3000}, {3, 3}, {1, 1}, {1, 1}, {2, 1}},
};
const Sizes kDepthwiseForwardCases[] = {
    {2, 3, 6, 3, {9, 33}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // two filters for each channel
    {1, 3, 3, 3, {15, 37}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {2, 2}},
    {2, 2, 2, 2, {15, 38}, {5, 4}, {2, 0}, {1, 3}, {1, 2}, {3, 2}},
    {1, 2, 4, 2, {90}, {3}, {7}, {9}, {2}, {5}},
    {1, 1, 1, 1, {9, 9}, {9, 9}, {0, 0}, {0, 0}, {1, 1}, {4, 4}},
    {1, 2, 2, 2, {83, 301}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {2, 2}},
};

TEST(DepthwiseConvolutions, AreSumsOfProducts) {
  for (const auto& [op, cases] : {std::pair<Op, std::span<const Sizes>>{Op::convolution, kDepthwiseCases},
                                  {Op::convolution_data_gradient, kDepthwiseCases},
                                  {Op::convolution, kDepthwiseForwardCases}})
    for (const Sizes& s : cases) {
      Problem p(s);
      ASSERT_TRUE(p.fits(op, &convolution_depthwise_fits)) << name(s);
      const double terms = static_cast<double>(element_count(p.w_sizes)) / static_cast<double>(s.filters);
      expect_close(p.run(op, &convolution_depthwise), p.run(op, &convolution_portable), 8 * terms, name(s));
    }
}

TEST(DepthwiseConvolutions, WithAStrideOfTwoTakeRowsOfAnyLength) {
  for (std::int64_t width = 3; width <= 72; ++width)
    for (const auto& [before, after] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {1, 1}, {2, 0}}) {
      const Sizes s{1, 2, 2, 2, {6, width}, {3, 3}, {1, before}, {1, after}, {1, 1}, {2, 2}};
      Problem p(s);
      expect_close(p.run(Op::convolution, &convolution_depthwise), p.run(Op::convolution, &convolution_portable), 72,
                   name(s));
    }
}

TEST(DepthwiseConvolutions, DoNotDependOnThreads) {
  const int before = thread_count();
  Problem p({3, 64, 64, 64, {30, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  set_thread_count(1);
  const std::vector<float> alone = p.run(Op::convolution, &convolution_depthwise);
  set_thread_count(3);
  EXPECT_EQ(p.run(Op::convolution, &convolution_depthwise), alone);
  set_thread_count(before);
}

TEST(DepthwiseConvolutions, LeaveTheRestToOthers) {
  EXPECT_FALSE(
      Problem({1, 4, 4, 2, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}).fits(Op::convolution, &convolution_depthwise_fits));
  for (const Sizes& s : {kDepthwiseForwardCases[0], kDepthwiseForwardCases[1]})
    EXPECT_FALSE(Problem(s).fits(Op::convolution_data_gradient, &convolution_depthwise_fits));
}

const Sizes kWinogradCases[] = {
    {2, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 64, 96, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {3, 17, 70, 1, {5, 9}, {3, 3}, {0, 2}, {1, 0}, {1, 1}},
    {1, 16, 16, 1, {3, 3}, {3, 3}, {0, 0}, {0, 0}, {1, 1}},   // one result
    {1, 33, 130, 1, {4, 1}, {3, 3}, {1, 1}, {2, 1}, {1, 1}},  // one column
    {2, 20, 31, 1, {6, 7}, {3, 3}, {4, 3}, {3, 5}, {1, 1}},   // windows that see nothing but padding
    {1, 130, 24, 1, {31, 29}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 16, 48, 1, {5, 251}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // rows of more tiles than a group has
    {19, 40, 40, 1, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
};

/// Numbers [images, channels, places ..] with their channels innermost, or back.
std::vector<float> moved_channels(const std::vector<float>& from, const Shape& sizes, bool back = false) {
  std::vector<float> to(from.size());
  const auto images = static_cast<std::size_t>(sizes[0]), channels = static_cast<std::size_t>(sizes[1]),
             places = from.size() / (images * channels);
  for (std::size_t n = 0; n < images; ++n)
    for (std::size_t c = 0; c < channels; ++c)
      for (std::size_t p = 0; p < places; ++p) {
        const std::size_t planes = (n * channels + c) * places + p, innermost = (n * places + p) * channels + c;
        back ? to[planes] = from[innermost] : to[innermost] = from[planes];
      }
  return to;
}
/// A convolution on images whose channels lie innermost; its result is brought back.
std::vector<float> run_channels_last(Problem& p, Problem::Kernel kernel, Epilogue* epilogue = nullptr) {
  std::vector<float> x = moved_channels(p.x, p.x_sizes), y(p.y.size(), -1);
  const Shape strides[] = {channels_last_strides(p.x_sizes), dense_strides(p.w_sizes),
                           channels_last_strides(p.y_sizes)};
  const auto rank = static_cast<std::uint8_t>(p.x_sizes.rank());
  const TensorView inputs[] = {{x.data(), DType::f32, rank, p.x_sizes.data(), strides[0].data()},
                               {p.w.data(), DType::f32, rank, p.w_sizes.data(), strides[1].data()}};
  const TensorView output{y.data(), DType::f32, rank, p.y_sizes.data(), strides[2].data()};
  kernel({.op = Op::convolution,
          .inputs = inputs,
          .outputs = {&output, 1},
          .attributes = p.attributes,
          .scalars = {},
          .epilogue = epilogue});
  return moved_channels(y, p.y_sizes, true);
}

/// Tap by tap, each product rounded.
std::vector<float> sums_in_order(const Problem& p) {
  const Sizes& s = p.sizes;
  const std::int64_t rows = s.out(0), columns = s.out(1);
  std::vector<float> out;
  for (std::int64_t plane = 0; plane < s.images * s.channels; ++plane)
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        float sum = 0;
        for (std::int64_t i = 0; i < s.taps[0]; ++i)
          for (std::int64_t j = 0; j < s.taps[1]; ++j) {
            const std::int64_t y = row * s.stride(0) + i * s.dilation[0] - s.padding[0],
                               x = column * s.stride(1) + j * s.dilation[1] - s.padding[1];
            const bool inside = y >= 0 && y < s.in[0] && x >= 0 && x < s.in[1];
            const auto at = static_cast<std::size_t>((plane * s.in[0] + y) * s.in[1] + x),
                       tap = static_cast<std::size_t>((plane % s.channels * s.taps[0] + i) * s.taps[1] + j);
            const float product = p.w[tap] * (inside ? p.x[at] : 0.0f);
            sum += product;
          }
        out.push_back(sum);
      }
  return out;
}

TEST(DepthwiseConvolutions, GiveTheSameBitsInEitherOrder) {
  std::mt19937 random(4711);
  const auto one_of = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random() % static_cast<unsigned>(most - least + 1));
  };
  const std::int64_t sides[] = {3, 5, 7, 4}, channels[] = {1, 5, 8, 16, 17, 33, 70, 200};
  for (int round = 0; round < 240; ++round) {
    const std::int64_t side = sides[round % 4], step = 1 + round / 4 % 2, c = channels[random() % 8];
    const std::int64_t taps = round % 5 == 4 ? side + 1 : side, dilation = round % 7 == 6 ? 2 : 1;
    const Sizes s{one_of(1, 2),
                  c,
                  c,
                  c,
                  {one_of(1, 21) + (taps - 1) * dilation, one_of(1, 40) + (side - 1) * dilation},
                  {taps, side},
                  {one_of(0, side), one_of(0, side)},
                  {one_of(0, side), one_of(0, side)},
                  {dilation, dilation},
                  {step, step}};
    Problem p(s, static_cast<unsigned>(random()));
    const std::vector<float> expected = sums_in_order(p);
    ASSERT_EQ(p.run(Op::convolution, &convolution_depthwise), expected) << name(s) << " round " << round;
    ASSERT_EQ(run_channels_last(p, &convolution_depthwise), expected) << name(s) << " round " << round;
  }
}

TEST(WinogradConvolutions, AreSumsOfProducts) {
  for (const Sizes& s : kWinogradCases)
    for (const Op op : {Op::convolution, Op::convolution_data_gradient}) {
      Problem p(s);
      ASSERT_TRUE(p.fits(op, &convolution_winograd_fits)) << name(s);
      const double terms = 9.0 * static_cast<double>(op == Op::convolution ? s.channels : s.filters);
      expect_close(p.run(op, &convolution_winograd), p.run(op, &convolution_portable), terms, name(s));
    }
}

/// numerics.md: 16 (C + 10) u times the largest magnitude of the tile times those of the taps, over all channels.
TEST(WinogradConvolutions, ErrorsStayWithinTheirBound) {
  const Sizes s{1, 24, 16, 1, {10, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  Problem p(s);
  std::mt19937 random(1);
  std::uniform_int_distribution<int> exponent(-12, 12);
  for (std::vector<float>* numbers : {&p.x, &p.w})
    for (float& v : *numbers) v = std::ldexp(v, exponent(random));
  const std::vector<float> got = p.run(Op::convolution, &convolution_winograd);
  const auto x = [&](std::int64_t c, std::int64_t row, std::int64_t column) {
    const bool is_there = row >= 0 && row < 10 && column >= 0 && column < 12;
    return is_there ? double{p.x[static_cast<std::size_t>((c * 10 + row) * 12 + column)]} : 0.0;
  };
  for (std::int64_t f = 0; f < 16; ++f)
    for (std::int64_t row = 0; row < 10; ++row)
      for (std::int64_t column = 0; column < 12; ++column) {
        double exact = 0, bound = 0;
        for (std::int64_t c = 0; c < 24; ++c) {
          double largest = 0, taps = 0;
          for (std::int64_t i = 0; i < 16; ++i)
            largest = std::max(largest, std::abs(x(c, row / 2 * 2 - 1 + i / 4, column / 2 * 2 - 1 + i % 4)));
          for (std::int64_t t = 0; t < 9; ++t) {
            const double w = p.w[static_cast<std::size_t>((f * 24 + c) * 9 + t)];
            exact += w * x(c, row - 1 + t / 3, column - 1 + t % 3), taps += std::abs(w);
          }
          bound += largest * taps;
        }
        ASSERT_NEAR(got[static_cast<std::size_t>((f * 10 + row) * 12 + column)], exact, 16 * 34 * 0x1p-24 * bound);
      }
}

TEST(WinogradConvolutions, DoNotDependOnThreadsNorOnTheOrderOfAxes) {
  const int before = thread_count();
  for (const Sizes& s : kWinogradCases) {
    Problem p(s);
    set_thread_count(1);
    const std::vector<float> alone = p.run(Op::convolution, &convolution_winograd),
                             gradient = p.run(Op::convolution_data_gradient, &convolution_winograd);
    for (const int threads : {1, 2, 3, 8}) {
      set_thread_count(threads);
      EXPECT_EQ(p.run(Op::convolution, &convolution_winograd), alone) << name(s);
      EXPECT_EQ(run_channels_last(p, &convolution_winograd), alone) << name(s);
      EXPECT_EQ(p.run(Op::convolution_data_gradient, &convolution_winograd), gradient) << name(s);
    }
  }
  set_thread_count(before);
}

TEST(WinogradConvolutions, InfinitiesAndNansSpreadNoFurtherThanTheirWindows) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Sizes s{2, 32, 80, 1, {9, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  const auto expect_alike = [](const std::vector<float>& got, const std::vector<float>& wanted) {
    for (std::size_t i = 0; i < got.size(); ++i)
      if (std::isfinite(wanted[i]))
        ASSERT_NEAR(got[i], wanted[i], 2e-4) << i;
      else
        ASSERT_TRUE(got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i]))) << i;
  };
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    Problem p(s);
    p.x[5] = p.x[300] = value;
    const std::vector<float> wanted = p.run(Op::convolution, &convolution_portable);
    expect_alike(p.run(Op::convolution, &convolution_winograd), wanted);
    expect_alike(run_channels_last(p, &convolution_winograd), wanted);
    Problem q(s);
    q.w[700] = value;
    expect_alike(q.run(Op::convolution, &convolution_winograd), q.run(Op::convolution, &convolution_portable));
    Problem r(s);  // filters without: the other kernel does not multiply the padding
    r.y[17] = value;
    expect_alike(r.run(Op::convolution_data_gradient, &convolution_winograd),
                 r.run(Op::convolution_data_gradient, &convolution_portable));
  }
  Problem large(s);  // whose transform overflows: plain sums do not
  for (float& v : large.x) v = std::copysign(2e38f, v);
  for (float& v : large.w) v *= 1e-4f;
  const std::vector<float> got = large.run(Op::convolution, &convolution_winograd),
                           wanted = large.run(Op::convolution, &convolution_portable);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i] / 1e34f, wanted[i] / 1e34f, 1e-3f * 288) << i;
}

/// On places and channels where those lie innermost, and on planes of row-major results.
void expect_epilogue_once(Problem& p, Problem::Kernel kernel) {
  const std::int64_t filters = p.sizes.filters, last = p.sizes.out(p.sizes.in.size() - 1);
  std::vector<std::atomic<int>> times(p.y.size()), rows(p.y.size() / static_cast<std::size_t>(last));
  const auto count = [&](const ResultTile& tile) {
    EXPECT_EQ(tile.column_begin % 64, 0);
    EXPECT_TRUE(tile.column_end % 64 == 0 || tile.column_end == filters);
    for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row)
      for (std::int64_t column = tile.column_begin; column < tile.column_end; ++column)
        ++times[static_cast<std::size_t>(row * filters + column)];
  };
  const auto count_rows = [&](const ResultTile& tile) {
    EXPECT_EQ(tile.column_begin, 0);
    EXPECT_EQ(tile.column_end, last);
    for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row) ++rows[static_cast<std::size_t>(row)];
  };
  Epilogue by_places{count}, by_planes{count_rows};
  p.run(Op::convolution, kernel, &by_planes);
  for (const auto& t : rows) ASSERT_EQ(t.load(), 1) << name(p.sizes);
  if (channels_last_strides(p.y_sizes) == dense_strides(p.y_sizes)) return;
  run_channels_last(p, kernel, &by_places);
  for (const auto& t : times) ASSERT_EQ(t.load(), 1) << name(p.sizes);
}

TEST(WinogradConvolutions, RunAnEpilogueOnEveryResultOnce) {
  for (const Sizes& s : kWinogradCases) {
    Problem p(s);
    expect_epilogue_once(p, &convolution_winograd);
  }
}

TEST(WinogradConvolutions, LeaveTheRestToOthers) {
  const Sizes fitting = kWinogradCases[0];
  std::vector<Sizes> others(7, fitting);
  others[0].strides = {2, 1}, others[1].dilation = {1, 2}, others[2].groups = 2;
  others[3].channels = 15, others[4].filters = 15, others[5].taps = {3, 1}, others[6].taps = {5, 5};
  for (const Op op : {Op::convolution, Op::convolution_data_gradient}) {
    EXPECT_TRUE(Problem(fitting).fits(op, &convolution_winograd_fits));
    for (const Sizes& s : others) EXPECT_FALSE(Problem(s).fits(op, &convolution_winograd_fits)) << name(s);
  }
  EXPECT_FALSE(Problem({1, 16, 16, 1, {20}, {3}, {1}, {1}, {1}}).fits(Op::convolution, &convolution_winograd_fits));
}

const Sizes kProductCases[] = {
    {1, 64, 64, 1, {8, 8}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {3, 17, 70, 1, {5, 9}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {2, 300, 33, 1, {7, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {5, 16, 16, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {2, 40, 24, 1, {77}, {1}, {0}, {0}, {1}},
    {1, 20, 130, 1, {3, 4, 5}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {2, 1, 1}},
    {1, 128, 256, 1, {28, 28}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
};
const Sizes kStridedProductCases[] = {
    {2, 32, 48, 1, {8, 9}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, {2, 2}},
    {1, 65, 16, 1, {7, 20}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 3}},
    {3, 16, 20, 1, {50}, {1}, {0}, {0}, {1}, {7}},
};

TEST(ProductConvolutions, AreSumsOfProducts) {
  for (const auto& [op, cases] : {std::pair<Op, std::span<const Sizes>>{Op::convolution, kProductCases},
                                  {Op::convolution_data_gradient, kProductCases},
                                  {Op::convolution, kStridedProductCases}})
    for (const Sizes& s : cases) {
      Problem p(s);
      ASSERT_TRUE(p.fits(op, &convolution_product_fits)) << name(s);
      const auto terms = static_cast<double>(op == Op::convolution ? s.channels : s.filters);
      expect_close(p.run(op, &convolution_product), p.run(op, &convolution_portable), 2 * terms, name(s));
    }
}

TEST(ProductConvolutions, DoNotDependOnThreadsNorOnTheOrderOfAxes) {
  const int before = thread_count();
  for (const std::span<const Sizes> cases : {std::span<const Sizes>(kProductCases), {kStridedProductCases}})
    for (const Sizes& s : cases) {
      Problem p(s);
      set_thread_count(1);
      const std::vector<float> alone = p.run(Op::convolution, &convolution_product);
      for (const int threads : {1, 2, 3, 8}) {
        set_thread_count(threads);
        EXPECT_EQ(p.run(Op::convolution, &convolution_product), alone) << name(s);
        EXPECT_EQ(run_channels_last(p, &convolution_product), alone) << name(s);
      }
    }
  set_thread_count(before);
}

TEST(ProductConvolutions, RunAnEpilogueOnEveryResultOnce) {
  for (const Sizes& s : kProductCases) {
    Problem p(s);
    expect_epilogue_once(p, &convolution_product);
  }
}

TEST(ProductConvolutions, LeaveTheRestToOthers) {
  const Sizes fitting = kProductCases[0];
  std::vector<Sizes> others(6, fitting);
  others[0].padding = {0, 1}, others[1].padding_end = {1, 0}, others[2].groups = 2;
  others[3].channels = 15, others[4].filters = 15, others[5].taps = {2, 1};
  for (const Op op : {Op::convolution, Op::convolution_data_gradient}) {
    EXPECT_TRUE(Problem(fitting).fits(op, &convolution_product_fits));
    for (const Sizes& s : others) EXPECT_FALSE(Problem(s).fits(op, &convolution_product_fits)) << name(s);
  }
  EXPECT_FALSE(Problem(kStridedProductCases[0]).fits(Op::convolution_data_gradient, &convolution_product_fits));
}

}  // namespace
}  // namespace fermata

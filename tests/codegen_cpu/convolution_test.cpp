// Tests of the convolution kernels in codegen_cpu/library beside each other and beside sums in double precision.
#include "codegen_cpu/library/convolution.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "codegen_cpu/library/matmul_amx.h"
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

}  // namespace
}  // namespace fermata

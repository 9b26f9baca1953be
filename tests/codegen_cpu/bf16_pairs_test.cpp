// Convolutions of bf16, by pairs and of single channels, against sums of small integers, of which rounding to bf16 is
// all that is inexact; and products cut in other ways.
#include "codegen_cpu/library/bf16_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/matmul.h"
#include "dispatch/kernel_table.h"
#include "ir/channels_last.h"
#include "ir/float16.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"
#include "tests/codegen_cpu/seed.h"

namespace fermata {
namespace {

struct Sizes {
  std::int64_t images, channels, filters, groups;  // channels and filters of all groups
  std::vector<std::int64_t> in, taps, strides, padding, dilation;
  std::int64_t out(std::size_t i) const {
    return (in[i] + 2 * padding[i] - (taps[i] - 1) * dilation[i] - 1) / strides[i] + 1;
  }
};

std::string name(const Sizes& s) {
  std::string text = std::to_string(s.images) + "x" + std::to_string(s.channels) + "->" + std::to_string(s.filters) +
                     "/" + std::to_string(s.groups);
  for (std::size_t i = 0; i < s.in.size(); ++i)
    text += " " + std::to_string(s.in[i]) + "*" + std::to_string(s.taps[i]) + "/" + std::to_string(s.strides[i]) + "+" +
            std::to_string(s.padding[i]) + "~" + std::to_string(s.dilation[i]);
  return text;
}

/// Elements of bf16 in some order.
struct Elements {
  Elements(const Shape& of, bool channels_last)
      : sizes(of),
        strides(channels_last ? channels_last_strides(of) : dense_strides(of)),
        data(static_cast<std::size_t>(element_count(of))) {}
  TensorView view() {
    return {data.data(), DType::bf16, static_cast<std::uint8_t>(sizes.rank()), sizes.data(), strides.data()};
  }
  BFloat16& at(const std::vector<std::int64_t>& index) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
    return data[static_cast<std::size_t>(offset)];
  }
  Shape sizes, strides;
  std::vector<BFloat16> data;
};

class Convolution {
 public:
  Convolution(const Sizes& s, Op op, bool in_last, bool out_last, std::mt19937_64& random)
      : s_(s),
        op_(op),
        x_(shape(s.images, s.channels, s.in), is_gradient() ? out_last : in_last),
        w_(shape(s.filters, s.channels / s.groups, s.taps), false),
        y_(shape(s.images, s.filters, outs()), is_gradient() ? in_last : out_last) {
    for (Elements* e : {&x_, &w_, &y_})
      for (BFloat16& v : e->data) v = to_bfloat16(static_cast<int>(random() % 7) - 3);
    attributes_ = {s.groups};
    for (const auto* list : {&s.strides, &s.padding, &s.padding, &s.dilation})
      attributes_.insert(attributes_.end(), list->begin(), list->end());
  }
  Elements& result() { return is_gradient() ? x_ : y_; }

  template <class F> void call(F&& f, Epilogue* epilogue = nullptr) {
    const TensorView inputs[] = {is_gradient() ? y_.view() : x_.view(), w_.view()}, output = result().view();
    CallArgs args{op_, inputs, {&output, 1}, attributes_, {}};
    args.epilogue = epilogue;
    f(args);
  }

  /// What each element of the result is, added up place by place.
  std::vector<float> sums() {
    std::vector<float> sums(result().data.size());
    const std::size_t axes = s_.in.size();
    std::vector<std::int64_t> y(axes + 2), w(axes + 2), x(axes + 2);
    const std::int64_t channels = s_.channels / s_.groups, filters = s_.filters / s_.groups;
    Shape of_filter = w_.sizes;
    of_filter[0] = 1;
    for_each(y_.sizes, y, [&] {
      for_each(of_filter, w, [&] {
        w[0] = y[1];
        x[0] = y[0], x[1] = y[1] / filters * channels + w[1];
        for (std::size_t i = 0; i < axes; ++i) {
          x[i + 2] = y[i + 2] * s_.strides[i] + w[i + 2] * s_.dilation[i] - s_.padding[i];
          if (x[i + 2] < 0 || x[i + 2] >= s_.in[i]) return;
        }
        if (is_gradient())
          sums[static_cast<std::size_t>(&x_.at(x) - x_.data.data())] += to_float(y_.at(y)) * to_float(w_.at(w));
        else
          sums[static_cast<std::size_t>(&y_.at(y) - y_.data.data())] += to_float(x_.at(x)) * to_float(w_.at(w));
      });
    });
    return sums;
  }

 private:
  bool is_gradient() const { return op_ == Op::convolution_data_gradient; }
  std::vector<std::int64_t> outs() const {
    std::vector<std::int64_t> outs;
    for (std::size_t i = 0; i < s_.in.size(); ++i) outs.push_back(s_.out(i));
    return outs;
  }
  static Shape shape(std::int64_t first, std::int64_t second, const std::vector<std::int64_t>& rest) {
    Shape shape{first, second};
    for (const std::int64_t size : rest) shape.push_back(size);
    return shape;
  }
  template <class F> static void for_each(const Shape& sizes, std::vector<std::int64_t>& index, F&& f) {
    std::fill(index.begin(), index.end(), 0);
    for (std::int64_t left = element_count(sizes); left > 0; --left) {
      f();
      for (std::size_t i = sizes.rank(); i-- > 0;) {
        if (sizes[i] > 1 && ++index[i] < sizes[i]) break;
        index[i] = 0;
      }
    }
  }

  Sizes s_;
  Op op_;
  Elements x_, w_, y_;
  std::vector<std::int64_t> attributes_;
};

class Bf16Pairs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_pairs()) GTEST_SKIP() << "this processor has no AVX-512 BF16, or FERMATA_CPU turns it off";
  }
};

void expect_sums(Convolution& c, CallKernel kernel, const std::string& what) {
  const std::vector<float> wanted = c.sums();
  c.call(kernel);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_EQ(to_float(c.result().data[i]), to_float(to_bfloat16(wanted[i])))
        << what << " at " << i << ", seed " << seed();
}

TEST_F(Bf16Pairs, ConvolutionsAreSumsOfProducts) {
  const Sizes kCases[] = {
      {2, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {1, 64, 96, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {1, 64, 40, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {3, 40, 17, 1, {5, 33}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
      {1, 3, 64, 1, {20, 31}, {7, 7}, {2, 2}, {3, 3}, {1, 1}},
      {2, 1, 9, 1, {9, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {1, 5, 8, 1, {9, 24}, {2, 3}, {1, 2}, {0, 2}, {2, 3}},
      {2, 33, 65, 1, {12, 10}, {3, 2}, {1, 1}, {2, 0}, {2, 3}},
      {1, 24, 36, 3, {6, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {2, 20, 31, 1, {70}, {5}, {1}, {2}, {1}},
      {2, 3, 12, 1, {90}, {9}, {4}, {4}, {1}},
      {1, 16, 16, 1, {200}, {1}, {1}, {0}, {1}},
      {1, 1, 9, 1, {300}, {150}, {1}, {70}, {1}},  // windows that are too long to be written down
      {1, 48, 40, 1, {40, 1}, {3, 1}, {1, 1}, {1, 0}, {1, 1}},
      {1, 6, 20, 1, {4, 5, 6}, {3, 2, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
      {2, 18, 33, 1, {4, 6, 15}, {1, 1, 1}, {1, 2, 1}, {0, 0, 0}, {1, 1, 1}},
      {1, 600, 70, 1, {6, 6}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {1, 17, 24, 1, {6, 6}, {3, 3}, {3, 1}, {4, 3}, {1, 1}},  // windows of nothing but padding
  };
  std::mt19937_64 random(seed());
  for (const Sizes& s : kCases)
    for (const Op op : {Op::convolution, Op::convolution_data_gradient})
      for (const int layouts : {0, 1, 2, 3}) {
        Convolution c(s, op, (layouts & 1) != 0, (layouts & 2) != 0, random);
        bool fits = false;
        c.call([&](const CallArgs& args) {
          fits = convolution_bf16_pairs_fits(args);
          EXPECT_GT(convolution_bf16_pairs_cost(args), 0);
        });
        if (op == Op::convolution) { ASSERT_TRUE(fits) << name(s); }
        if (!fits) continue;
        expect_sums(c, &convolution_bf16_pairs,
                    name(s) + (op == Op::convolution ? "" : " gradient") + " layouts " + std::to_string(layouts));
        if (HasFatalFailure()) return;
      }
}

TEST(DepthwiseBf16, ConvolutionsAreSumsOfProducts) {
  const Sizes kCases[] = {{2, 32, 32, 32, {8, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                          {1, 40, 40, 40, {13, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                          {1, 5, 5, 5, {6, 7}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
                          {2, 19, 19, 19, {30}, {7}, {1}, {3}, {1}},
                          {1, 24, 24, 24, {9, 9}, {2, 4}, {2, 1}, {1, 2}, {2, 1}},
                          {1, 1, 1, 1, {6, 40}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
                          {1, 48, 48, 48, {7, 30}, {5, 5}, {2, 2}, {2, 2}, {1, 1}}};
  std::mt19937_64 random(seed());
  for (const Sizes& s : kCases)
    for (const int layouts : {0, 1, 2, 3}) {
      Convolution c(s, Op::convolution, (layouts & 1) != 0, (layouts & 2) != 0, random);
      c.call([&](const CallArgs& args) {
        EXPECT_TRUE(convolution_depthwise_bf16_fits(args));
        EXPECT_GT(convolution_depthwise_bf16_cost(args), 0);
      });
      expect_sums(c, &convolution_depthwise_bf16, name(s) + " layouts " + std::to_string(layouts));
      if (HasFatalFailure()) return;
    }
}

TEST_F(Bf16Pairs, ConvolutionsDoNotDependOnThreads) {
  const int before = thread_count();
  const Sizes kCases[] = {{3, 64, 160, 1, {30, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                          {1, 512, 512, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                          {1, 128, 256, 1, {28, 28}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}};
  for (const Sizes& s : kCases) {
    std::vector<BFloat16> alone;
    for (const int threads : {1, 2, 3, 7}) {
      set_thread_count(threads);
      std::mt19937_64 random(seed());
      Convolution c(s, Op::convolution, true, true, random);
      c.call(&convolution_bf16_pairs);
      if (threads == 1) alone = c.result().data;
      EXPECT_EQ(std::memcmp(alone.data(), c.result().data.data(), 2 * alone.size()), 0) << name(s) << " " << threads;
    }
  }
  set_thread_count(before);
}

TEST_F(Bf16Pairs, EpiloguesSeeEveryTileOnceWhereverItLies) {
  const int before = thread_count();
  const Sizes kCases[] = {{2, 16, 130, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                          {1, 128, 256, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                          {2, 24, 96, 3, {12, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}};
  for (const Sizes& s : kCases)
    for (const int threads : {1, 4})
      for (const bool elsewhere : {false, true}) {
        set_thread_count(threads);
        std::mt19937_64 random(seed());
        Convolution c(s, Op::convolution, true, true, random);
        const std::vector<float> wanted = c.sums();
        std::vector<std::atomic<int>> times(wanted.size());
        const BFloat16* const result = c.result().data.data();
        const auto check = [&](const ResultTile& tile) {
          if (!elsewhere) { EXPECT_EQ(tile.rows, nullptr); }
          const BFloat16* const rows =
              tile.rows != nullptr ? reinterpret_cast<const BFloat16*>(tile.rows) : result + tile.row_begin * s.filters;
          for (std::int64_t row = tile.row_begin; row < tile.row_end; ++row)
            for (std::int64_t column = tile.column_begin; column < tile.column_end; ++column) {
              const auto at = static_cast<std::size_t>(row * s.filters + column);
              ++times[at];
              EXPECT_EQ(to_float(rows[(row - tile.row_begin) * s.filters + column]), to_float(to_bfloat16(wanted[at])));
            }
        };
        Epilogue epilogue{.on_tile = check, .takes_tiles_elsewhere = elsewhere};
        c.call(&convolution_bf16_pairs, &epilogue);
        for (const auto& each : times) ASSERT_EQ(each.load(), 1) << name(s);
      }
  set_thread_count(before);
}

TEST_F(Bf16Pairs, LeaveTheRestToOthers) {
  std::mt19937_64 random(seed());
  const auto fits = [&](const Sizes& s, Op op) {
    bool does = false;
    Convolution(s, op, true, true, random).call([&](const CallArgs& args) {
      does = convolution_bf16_pairs_fits(args);
    });
    return does;
  };
  EXPECT_FALSE(fits({1, 16, 16, 16, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, Op::convolution));
  EXPECT_FALSE(fits({1, 32, 32, 1, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}, Op::convolution_data_gradient));
  EXPECT_FALSE(fits({1, 32, 32, 1, {8, 8}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, Op::convolution_data_gradient));
}

TEST_F(Bf16Pairs, RowsOfProductsDoNotDependOnHowTheyAreCut) {
  constexpr std::int64_t kRows = 300, kDepth = 700, kColumns = 130;
  std::mt19937_64 random(seed());
  std::normal_distribution<float> normal;
  std::vector<BFloat16> x(kRows * kDepth), w(kDepth * kColumns), whole(kRows * kColumns), part(kRows * kColumns);
  for (auto* values : {&x, &w})
    for (BFloat16& v : *values) v = to_bfloat16(normal(random));
  const auto multiply = [&](std::int64_t first, std::int64_t rows, std::vector<BFloat16>& out) {
    const std::int64_t x_sizes[] = {rows, kDepth}, x_strides[] = {kDepth, 1}, w_sizes[] = {kDepth, kColumns},
                       w_strides[] = {kColumns, 1}, out_sizes[] = {rows, kColumns}, out_strides[] = {kColumns, 1};
    const TensorView inputs[] = {{x.data() + first * kDepth, DType::bf16, 2, x_sizes, x_strides},
                                 {w.data(), DType::bf16, 2, w_sizes, w_strides}};
    const TensorView output{out.data() + first * kColumns, DType::bf16, 2, out_sizes, out_strides};
    const CallArgs args{Op::matmul, inputs, {&output, 1}, {}, {}};
    ASSERT_TRUE(matmul_bf16_pairs_fits(args));
    matmul_bf16_pairs(args);
  };
  multiply(0, kRows, whole);
  for (const std::int64_t rows : {1, 7, 33, 128}) {
    for (std::int64_t first = 0; first < kRows; first += rows) multiply(first, std::min(rows, kRows - first), part);
    EXPECT_EQ(std::memcmp(whole.data(), part.data(), 2 * whole.size()), 0) << rows;
  }
}

}  // namespace
}  // namespace fermata

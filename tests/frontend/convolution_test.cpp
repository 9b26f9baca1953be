// Convolutions against plain loops: sizes, layouts, dtypes, derivatives, numbers of threads and errors, in both modes.
#include <gtest/gtest.h>

#include "codegen_cpu/library/matmul.h"
#include "runtime/thread_pool.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;

class Convolutions : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Convolutions, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

struct Case {
  Shape x, weight, stride, padding, dilation;
  std::int64_t groups = 1;
};
const Case kCases[] = {
    {{2, 3, 7, 6}, {4, 3, 3, 2}, {1, 1}, {0, 0}, {1, 1}},
    {{2, 3, 7, 6}, {4, 3, 3, 2}, {2, 3}, {1, 2}, {1, 1}},
    {{1, 4, 9, 8}, {6, 2, 3, 3}, {2, 1}, {2, 0}, {2, 3}, 2},
    {{3, 4, 5, 5}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},  // depthwise
    {{2, 5, 4, 4}, {3, 5, 1, 1}, {1, 1}, {0, 0}, {1, 1}},     // pointwise
    {{1, 2, 3, 3}, {2, 2, 3, 3}, {1, 1}, {0, 0}, {1, 1}},     // one place
    {{1, 2, 2, 2}, {2, 2, 3, 3}, {2, 2}, {2, 2}, {1, 1}},     // a window larger than x
    {{1, 32, 6, 6}, {64, 32, 3, 3}, {1, 1}, {1, 1}, {1, 1}},  // filters split
    {{20, 2, 5, 5}, {3, 2, 2, 2}, {1, 1}, {0, 0}, {1, 1}},    // images in parts
    {{2, 3, 9}, {4, 3, 4}, {2}, {3}, {2}},
    {{2, 3, 5, 4}, {4, 3, 2, 3}, {1, 2}, {4, 7}, {1, 1}},  // windows that see nothing
    {{1, 2, 4, 3, 5}, {2, 2, 2, 3, 2}, {1, 1, 2}, {1, 0, 0}, {1, 1, 2}},
};

std::vector<double> values(const Tensor& x) { return x.astype(DType::f64).to_vector<double>(); }

/// Loops over everything, in f64. Calls f(x, weight, y) with flat positions of every product.
template <class F> void for_products(const Case& c, const Shape& y, F&& f) {
  const std::size_t axes = c.stride.rank();
  std::int64_t window = 1, places = 1;
  for (std::size_t i = 0; i < axes; ++i) window *= c.weight[i + 2], places *= y[i + 2];
  const std::int64_t filters = c.weight[0] / c.groups;
  for (std::int64_t n = 0; n < c.x[0]; ++n)
    for (std::int64_t o = 0; o < c.weight[0]; ++o)
      for (std::int64_t p = 0; p < places; ++p)
        for (std::int64_t k = 0; k < c.weight[1] * window; ++k) {
          std::int64_t place = p, tap = k % window, offset = 0, scale = 1;
          bool inside = true;
          for (std::size_t i = axes; i-- > 0;) {
            const std::int64_t at =
                place % y[i + 2] * c.stride[i] + tap % c.weight[i + 2] * c.dilation[i] - c.padding[i];
            place /= y[i + 2], tap /= c.weight[i + 2];
            inside = inside && at >= 0 && at < c.x[i + 2];
            offset += at * scale, scale *= c.x[i + 2];
          }
          const std::int64_t channel = o / filters * c.weight[1] + k / window;
          if (inside)
            f((n * c.x[1] + channel) * scale + offset, o * c.weight[1] * window + k, (n * y[1] + o) * places + p);
        }
}
std::vector<double> expected(const Case& c, const Tensor& x, const Tensor& weight, const Shape& y) {
  std::vector<double> sums(static_cast<std::size_t>(element_count(y))), a = values(x), b = values(weight);
  for_products(c, y, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    sums[static_cast<std::size_t>(k)] += a[static_cast<std::size_t>(i)] * b[static_cast<std::size_t>(j)];
  });
  return sums;
}

Tensor convolved(const Case& c, const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  switch (c.stride.rank()) {
    case 1: return conv1d(x, weight, bias, c.stride, c.padding, c.dilation, c.groups);
    case 2: return conv2d(x, weight, bias, c.stride, c.padding, c.dilation, c.groups);
    default: return conv3d(x, weight, bias, c.stride, c.padding, c.dilation, c.groups);
  }
}

void expect_near(const Tensor& found, const std::vector<double>& wanted, double tolerance, const std::string& what) {
  const std::vector<double> got = values(found);
  ASSERT_EQ(got.size(), wanted.size()) << what;
  double largest = 1;
  for (const double w : wanted) largest = std::max(largest, std::abs(w));
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], tolerance * largest) << what << ", " << i;
}

double tolerance_of(DType t) {
  return t == DType::f64 ? 1e-14 : t == DType::f32 ? 1e-6 : t == DType::f16 ? 1e-3 : 8e-3;
}

TEST_P(Convolutions, AreSumsOfProducts) {
  for (const Case& c : kCases)
    for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      const Tensor x = random_f64(c.x, 0.1, 1, true, 3).astype(t), w = random_f64(c.weight, 0.1, 1, true, 4).astype(t);
      const Tensor y = convolved(c, x, w);
      const std::string what = std::string(name(t)) + " " + to_string(c.x) + " by " + to_string(c.weight);
      EXPECT_EQ(y.dtype(), t);
      expect_near(y, expected(c, x, w, y.shape()), tolerance_of(t), what);
    }
}

TEST_P(Convolutions, GradientsAreTheTransposedSums) {
  for (const Case& c : kCases)
    for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      Tensor x = random_f64(c.x, 0.1, 1, true, 3).astype(t), w = random_f64(c.weight, 0.1, 1, true, 4).astype(t);
      x.requires_grad(true), w.requires_grad(true);
      const Tensor y = convolved(c, x, w), g = random_f64(y.shape(), 0.1, 1, true, 5).astype(t);
      const Inputs found = gradients(y, {x, w}, g);
      const std::vector<double> a = values(x), b = values(w), d = values(g);
      std::vector<double> of_x(a.size()), of_w(b.size());
      for_products(c, y.shape(), [&](std::int64_t i, std::int64_t j, std::int64_t k) {
        of_x[static_cast<std::size_t>(i)] += b[static_cast<std::size_t>(j)] * d[static_cast<std::size_t>(k)];
        of_w[static_cast<std::size_t>(j)] += a[static_cast<std::size_t>(i)] * d[static_cast<std::size_t>(k)];
      });
      const std::string what = std::string(name(t)) + " " + to_string(c.x) + " by " + to_string(c.weight);
      expect_near(found[0], of_x, tolerance_of(t), "of x, " + what);
      expect_near(found[1], of_w, tolerance_of(t), "of the weight, " + what);
    }
}

TEST_P(Convolutions, OperandsMayLieInAnyOrder) {
  const Case c{{2, 3, 6, 5}, {4, 3, 3, 2}, {1, 2}, {1, 0}, {1, 1}};
  for (const DType t : {DType::f32, DType::f64}) {
    const Tensor x = random_f64(c.x, 0.1, 1, true, 3).astype(t), w = random_f64(c.weight, 0.1, 1, true, 4).astype(t);
    const Tensor y = convolved(c, x, w);
    const std::vector<double> wanted = values(y);
    const auto variants = [](const Tensor& z) {
      const Tensor channels_last = permute(copy(permute(z, {0, 2, 3, 1})), {0, 3, 1, 2});
      const Tensor wide = select(stack({z, z}, 4), 4, 0);
      return Inputs{channels_last, flip(copy(flip(z))), wide};
    };
    for (const Tensor& a : variants(x))
      for (const Tensor& b : variants(w)) expect_near(convolved(c, a, b), wanted, tolerance_of(t), "layouts");
    // Overlapping windows and stretched axes share elements.
    const Tensor line = random_f64({2, 3, 10}, 0.1, 1, true, 6).astype(t), windows = unfold(line, 2, 5, 1);
    expect_near(convolved(c, windows, w), values(convolved(c, copy(windows), w)), 0, "windows");
    const Tensor one = random_f64({1, 3, 1, 5}, 0.1, 1, true, 6).astype(t);
    const Tensor all = broadcast_to(one, {2, 3, 6, 5});
    expect_near(convolved(c, all, w), values(convolved(c, copy(all), w)), 0, "stretched");
  }
}

TEST_P(Convolutions, BiasesImagesAndNames) {
  const Tensor x = random_f64({3, 6, 7}, 0.1, 1, true, 1), w = random_f64({2, 3, 4, 3}, 0.1, 1, true, 2);
  const Tensor bias = tensor({1.0, -2.0}, DType::f64);
  const Tensor y = conv2d(x, w, bias);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 5}));
  const Tensor plain = conv2d(expand_dims(x, 0), w)[0];
  expect_near(y, values(plain + reshape(bias, {2, 1, 1})), 1e-15, "one image");
  const Tensor same = conv2d(x, w, {}, 1, "same");
  EXPECT_EQ(same.shape(), (Shape{2, 6, 7}));
  // Of three elements beyond a window of four, one comes before x and two after it.
  const Tensor padded = pad(x, {1, 1, 1, 2});
  expect_near(same, values(conv2d(padded, w)), 1e-14, "same");
  expect_near(conv2d(x, w, {}, 1, "valid"), values(conv2d(x, w)), 0, "valid");
  EXPECT_EQ(conv1d(ones({2, 3, 9}), ones({5, 3, 3}), {}, 1, "same", 3).shape(), (Shape{2, 5, 9}));
}

TEST_P(Convolutions, TransposedOnesAreGradients) {
  const Tensor x = random_f64({2, 4, 3, 5}, 0.1, 1, true, 1), w = random_f64({4, 3, 3, 2}, 0.1, 1, true, 2);
  for (const std::int64_t extra : {0, 1}) {
    const Tensor y = conv_transpose2d(x, w, {}, {2, 3}, {1, 0}, extra);
    EXPECT_EQ(y.shape(), (Shape{2, 3, 5 + extra, 14 + extra}));
    // <conv_transpose(x), z> = <x, conv(z)>.
    const Tensor z = random_f64(y.shape(), 0.1, 1, true, 3);
    const Tensor back = conv2d(z, w, {}, {2, 3}, {1, 0});
    const Tensor part = slice(slice(back, 2, 0, 3), 3, 0, 5);
    EXPECT_NEAR(sum(y * z).item<double>(), sum(x * part).item<double>(), 1e-12) << extra;
  }
  EXPECT_EQ(conv_transpose1d(ones({2, 6, 5}), ones({6, 2, 3}), ones({4}), 2, 1, 1, 2).shape(), (Shape{2, 4, 10}));
  EXPECT_EQ(conv_transpose3d(ones({1, 2, 2, 2, 2}), ones({2, 1, 2, 2, 2})).shape(), (Shape{1, 1, 3, 3, 3}));
  check_both_orders("conv_transpose1d", [](const Inputs& in) { return conv_transpose1d(in[0], in[1], in[2], 2, 1, 1); },
                    {random_f64({1, 2, 3}, 0.5, 1, true, 4), random_f64({2, 2, 3}, 0.5, 1, true, 5),
                     random_f64({2}, 0.5, 1, true, 6)});
}

TEST_P(Convolutions, DerivativesOfBothOrders) {
  const Function f = [](const Inputs& in) { return conv2d(in[0], in[1], in[2], {2, 1}, {1, 0}, {1, 2}, 2); };
  check_both_orders("conv2d", f,
                    {random_f64({2, 2, 3, 4}, 0.5, 1, true, 1), random_f64({2, 1, 2, 2}, 0.5, 1, true, 2),
                     random_f64({2}, 0.5, 1, true, 3)});
  const Function g = [](const Inputs& in) { return conv1d(square(in[0]), in[1]); };
  check_gradients("third derivative of conv1d", gradient_sum(gradient_sum(g)),
                  {random_f64({1, 2, 4}, 0.5, 1, true, 1), random_f64({2, 2, 2}, 0.5, 1, true, 2)}, 2e-5);
}

TEST(ConvolutionTiles, WhatFollowsRunsOnEachPart) {
  // Sizes of planes, numbers of images, filters that are split or not, and dtypes that are rounded in the end.
  const Case cases[] = {{{20, 4, 9, 7}, {6, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
                        {{2, 16, 8, 8}, {64, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
                        {{3, 4, 16, 4}, {8, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},
                        {{3, 4, 64}, {8, 4, 3}, {1}, {1}, {1}},
                        {{1, 2, 5, 5}, {1, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}}};
  for (const Case& c : cases)
    for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      const Tensor x = random_f64(c.x, 0.1, 1, true, 3).astype(t), w = random_f64(c.weight, 0.1, 1, true, 4).astype(t);
      const Tensor bias = random_f64({c.weight[0]}, 0.1, 1, true, 5).astype(t);
      sync({x, w, bias});
      const auto network = [&](bool biased, bool residual) {
        const Tensor y = convolved(c, x, w, biased ? bias : Tensor());
        return residual ? relu(y) * 2 + y : gelu(y);
      };
      for (const bool biased : {false, true})
        for (const bool residual : {false, true}) {
          const auto eager = [&] {
            const ModeGuard mode(Mode::eager);
            return network(biased, residual).sync();
          }();
          const ModeGuard mode(Mode::compiled);
          for (int run = 0; run < 3; ++run)
            EXPECT_EQ(values(network(biased, residual)), values(eager))
                << name(t) << " " << to_string(c.x) << biased << residual;
          const Tensor y = network(biased, residual);
          EXPECT_NE(explain(y).find("on each tile of step 0"), std::string::npos) << explain(y);
        }
    }
}

TEST_P(Convolutions, EmptyOnes) {
  const Tensor w = ones({4, 3, 2, 2});
  EXPECT_EQ(conv2d(zeros({0, 3, 5, 5}), w).sync().shape(), (Shape{0, 4, 4, 4}));
  EXPECT_EQ(sum(conv2d(zeros({2, 0, 5, 5}), zeros({4, 0, 2, 2})) + 1).item<float>(), 2 * 4 * 4 * 4);
  EXPECT_EQ(conv2d(zeros({2, 3, 5, 5}), zeros({0, 3, 2, 2})).sync().shape(), (Shape{2, 0, 4, 4}));
  Tensor leaf = copy(w).requires_grad(true);
  EXPECT_EQ(sum(abs(gradients(sum(conv2d(zeros({0, 3, 5, 5}), leaf)), {leaf})[0])).item<float>(), 0);
}

TEST_P(Convolutions, DoNotDependOnTheNumberOfThreads) {
  const int before = thread_count();
  for (const DType t : {DType::f32, DType::f64, DType::bf16})
    for (const Case& c : {kCases[7], kCases[8], Case{{5, 8, 20, 20}, {16, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 2}}) {
      std::vector<std::vector<double>> all[3];
      for (const int threads : {1, 2, 5}) {
        set_thread_count(threads);
        Tensor x = random_f64(c.x, 0.1, 1, true, 3).astype(t), w = random_f64(c.weight, 0.1, 1, true, 4).astype(t);
        x.requires_grad(true), w.requires_grad(true);
        const Tensor y = convolved(c, x, w);
        const Inputs g = gradients(sum(y * y), {x, w});
        all[0].push_back(values(y)), all[1].push_back(values(g[0])), all[2].push_back(values(g[1]));
      }
      for (const auto& results : all)
        for (const auto& result : results) EXPECT_EQ(result, results[0]) << name(t) << " " << to_string(c.x);
    }
  set_thread_count(before);
}

TEST_P(Convolutions, ErrorsNameTheOperands) {
  const Tensor x = zeros({2, 3, 5, 5}), w = zeros({4, 3, 3, 3});
  EXPECT_EQ(message<Error>([&] {
              conv2d(x, zeros({4, 2, 3, 3}));
            }),
            "FM1072 ShapeError: convolution: channels do not match (3 and 1 groups of 2, with 4 filters)\n"
            "  x      f32[2, 3, 5, 5]\n  weight f32[4, 2, 3, 3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] {
              conv2d(x, zeros({4, 3, 6, 3}));
            }),
            "FM1073 ShapeError: convolution: a filter of 6 elements, 1 apart, does not fit 5 along axis 2\n"
            "  x      f32[2, 3, 5, 5]\n  weight f32[4, 3, 6, 3]\n  at     HERE");
  EXPECT_EQ(
      message<Error>([&] {
        conv2d(zeros({5, 5}), w);
      }),
      "FM1071 ShapeError: conv2d: x must have channels and 2 spatial axes, with or without a batch\n  x    f32[5, 5]\n"
      "  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              conv1d(zeros({2, 3, 5}), w);
            }),
            "FM1071 ShapeError: conv1d: weight must have 3 axes\n"
            "  x      f32[2, 3, 5]\n  weight f32[4, 3, 3, 3]\n  at     HERE");
  EXPECT_EQ(
      message<Error>([&] { conv2d(x, w, zeros({3})); }),
      "FM1076 ShapeError: conv2d: the shape of bias does not match the filters\n  bias f32[3]   should be [4]\n  at   "
      "HERE");
  EXPECT_EQ(message<Error>([&] {
              conv2d(x, w, {}, {1, 2, 3});
            }),
            "FM1372 ValueError: conv2d: stride has 3 numbers, not 1 or 2\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { conv2d(x, w, {}, 0); }),
            "FM1372 ValueError: conv2d: stride is 0, below 1\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { conv2d(x, w, {}, 2, "same"); }),
            "FM1373 ValueError: conv2d: padding \"same\" requires strides of 1\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { conv2d(x, w, {}, 1, "full"); }),
            "FM1373 ValueError: conv2d: padding \"full\" is neither \"same\" nor \"valid\"\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { conv2d(x, w, {}, 1, 0, 1, 0); }),
            "FM1370 ValueError: convolution: the number of groups is 0, below 1\n"
            "  x      f32[2, 3, 5, 5]\n  weight f32[4, 3, 3, 3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { conv2d(x.astype(DType::i32), w.astype(DType::i32)); }),
            "FM1101 DTypeError: convolution: does not take i32\n"
            "  x      i32[2, 3, 5, 5]\n  weight i32[4, 3, 3, 3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] { conv2d(x, w.astype(DType::f64)); }),
            "FM1102 DTypeError: convolution: operands differ in dtype (f32 and f64)\n"
            "  x      f32[2, 3, 5, 5]\n  weight f64[4, 3, 3, 3]\n  at     HERE\n  hint   cast both to f64");
  EXPECT_EQ(sum(conv2d(x + 1, w + 1)).item<float>(), 2 * 4 * 9 * 27);  // the engine still works
}

/// oneDNN unrolls padding: a million zeros took gigabytes.
TEST(ConvolutionKernels, OneDnnHasNoWindowsThatSeeNothing) {
  if (!has_onednn()) GTEST_SKIP() << "built without oneDNN";
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = rand({1, 16, 9, 9}), weight = rand({16, 16, 3, 3});
  const auto fits = [&](const Tensor& y) { return explain(y).find("onednn (library, needs") == std::string::npos; };
  EXPECT_TRUE(fits(conv2d(x, weight, {}, 1, {2, 2})));
  EXPECT_FALSE(fits(conv2d(x, weight, {}, 1, {2, 3})));
  EXPECT_FALSE(fits(conv2d(x, weight, {}, 1, {3, 2})));
}

}  // namespace
}  // namespace fermata

// Windows, pools, padding and interpolation against plain loops, in both modes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;
using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;

class Pooling : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Pooling, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

std::vector<double> values(const Tensor& x) { return x.astype(DType::f64).to_vector<double>(); }
Floats floats(const Tensor& x) { return x.astype(DType::f32).to_vector<float>(); }
void expect_near(const Tensor& found, const Tensor& wanted, double tolerance = 1e-12) {
  expect_close(found, wanted, tolerance);
}

TEST_P(Pooling, UnfoldIsAViewOfWindows) {
  const Tensor x = arange(7).astype(DType::f32);
  const Tensor windows = unfold(x, 0, 3, 2);
  EXPECT_EQ(windows.shape(), (Shape{3, 3}));
  EXPECT_EQ(floats(windows), (Floats{0, 1, 2, 2, 3, 4, 4, 5, 6}));
  EXPECT_EQ(floats(unfold(x, 0, 2, 3, 2)), (Floats{0, 2, 3, 5}));
  EXPECT_EQ(floats(unfold(reshape(arange(6), {2, 3}), 0, 2, 1)), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(floats(unfold(flip(x), -1, 2, 5)), (Floats{6, 5, 1, 0}));
  EXPECT_EQ(floats(sum(unfold(x, 0, 3, 2) * 2, -1)), (Floats{6, 18, 30}));
  EXPECT_EQ(floats(unfold(unfold(x, 0, 3, 2), 1, 2, 1)), (Floats{0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6}));
  // What is written to x is seen in the windows; windows that overlap cannot be written, others can.
  Tensor y = copy(x);
  const Tensor seen = unfold(y, 0, 3, 2);
  y += 10;
  EXPECT_EQ(floats(seen), (Floats{10, 11, 12, 12, 13, 14, 14, 15, 16}));
  Tensor apart = unfold(y, 0, 2, 2);
  apart *= 0;
  EXPECT_EQ(floats(y), (Floats{0, 0, 0, 0, 0, 0, 16}));
  Tensor overlapping = unfold(y, 0, 3, 2);
  EXPECT_EQ(message<Error>([&] { overlapping.assign(1); }),
            "FM1308 ValueError: an in-place write to a view whose elements share memory\n"
            "  x    f32[3, 3]\n  at   HERE\n  hint copy() returns a writable tensor");
}

TEST_P(Pooling, FoldAddsWindowsUp) {
  const Tensor windows = tensor({{1.0f, 2.0f, 3.0f}, {10.0f, 20.0f, 30.0f}});
  EXPECT_EQ(floats(fold(windows, 0, 5, 2)), (Floats{1, 2, 13, 20, 30}));
  EXPECT_EQ(floats(fold(windows, 0, 6, 2)), (Floats{1, 2, 13, 20, 30, 0}));
  for (const DType t : {DType::f16, DType::bf16, DType::f64, DType::u8, DType::i16, DType::i64})
    EXPECT_EQ(floats(fold(windows.astype(t), 0, 5, 2)), (Floats{1, 2, 13, 20, 30})) << name(t);
  EXPECT_EQ(floats(fold(flip(copy(flip(windows))), 0, 5, 2)), (Floats{1, 2, 13, 20, 30}));
  const Tensor x = random_f64({2, 9, 3}, 0, 1, true, 1), w = random_f64({2, 4, 3, 3}, 0, 1, true, 2);
  // <unfold(x), w> = <x, fold(w)>.
  EXPECT_NEAR(sum(unfold(x, 1, 3, 2) * w).item<double>(), sum(x * fold(w, 1, 9, 2)).item<double>(), 1e-13);
  EXPECT_EQ(fold(zeros({0, 2, 3}), 1, 5, 2).sync().shape(), (Shape{0, 5}));
  check_both_orders("unfold", [](const Inputs& in) { return square(unfold(in[0], 1, 2, 1, 2)); },
                    {random_f64({2, 5}, 0.5, 1, true, 3)});
  check_both_orders("fold", [](const Inputs& in) { return square(fold(in[0], 0, 5, 2)); },
                    {random_f64({2, 3}, 0.5, 1, true, 3)});
}

TEST_P(Pooling, ImagesAsColumns) {
  const Tensor x = random_f64({2, 3, 5, 6}, 0, 1, true, 1), w = random_f64({4, 3, 2, 3}, 0, 1, true, 2);
  const Tensor columns = im2col(x, {2, 3}, 1, {1, 0}, {2, 1});
  EXPECT_EQ(columns.shape(), (Shape{2, 18, 12}));
  expect_near(reshape(matmul(reshape(w, {4, 18}), columns), {2, 4, 3, 4}), conv2d(x, w, {}, {2, 1}, {1, 0}));
  const Tensor counted = col2im(im2col(ones({1, 1, 4, 4}), 2), 4, 2);
  EXPECT_EQ(floats(counted), (Floats{1, 2, 2, 1, 2, 4, 4, 2, 2, 4, 4, 2, 1, 2, 2, 1}));
  EXPECT_EQ(col2im(im2col(x, {2, 3}, 1, {1, 0}, {2, 1}), {5, 6}, {2, 3}, 1, {1, 0}, {2, 1}).shape(), x.shape());
}

/// A pool over two axes by loops: `start` is what a window begins with.
template <class F> Tensor pooled(const Tensor& x, int kernel, int stride, int padding, int dilation, std::int64_t h,
                                 std::int64_t w, double start, F&& f) {
  const std::vector<double> from = values(x);
  std::vector<double> to;
  const std::int64_t rows = x.size(-2), columns = x.size(-1), maps = element_count(x.shape()) / (rows * columns);
  for (std::int64_t m = 0; m < maps; ++m)
    for (std::int64_t i = 0; i < h; ++i)
      for (std::int64_t j = 0; j < w; ++j) {
        double result = start;
        for (int a = 0; a < kernel; ++a)
          for (int b = 0; b < kernel; ++b) {
            const std::int64_t r = i * stride - padding + a * dilation, c = j * stride - padding + b * dilation;
            if (r >= 0 && r < rows && c >= 0 && c < columns)
              result = f(result, from[static_cast<std::size_t>((m * rows + r) * columns + c)]);
          }
        to.push_back(result);
      }
  Shape shape = x.shape();
  shape[shape.rank() - 2] = h, shape[shape.rank() - 1] = w;
  return tensor(to, shape).astype(x.dtype());
}

TEST_P(Pooling, MaxPools) {
  const double low = -std::numeric_limits<double>::infinity();
  const auto larger = [](double a, double b) { return std::max(a, b); };
  for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i8}) {
    const Tensor x = (random_f64({2, 3, 9, 8}, 0, 100, true, 1)).astype(t);
    expect_near(max_pool2d(x, 2), pooled(x, 2, 2, 0, 1, 4, 4, low, larger), 0);
    expect_near(max_pool2d(x, 3, 2, 1), pooled(x, 3, 2, 1, 1, 5, 4, low, larger), 0);
    expect_near(max_pool2d(x, 3, 2, 1, 1, true), pooled(x, 3, 2, 1, 1, 5, 5, low, larger), 0);
    expect_near(max_pool2d(x, 2, 1, 0, 3), pooled(x, 2, 1, 0, 3, 6, 5, low, larger), 0);
    expect_near(max_pool2d(transpose(x), 2), transpose(max_pool2d(x, 2)), 0);
  }
  EXPECT_EQ(floats(max_pool1d(tensor({{1.0f, 3.0f, 2.0f, 5.0f, 4.0f}}), 2)), (Floats{3, 5}));
  EXPECT_EQ(floats(max_pool1d(tensor({{1.0f, 3.0f, 2.0f, 5.0f, 4.0f}}), 2, 2, 0, 1, true)), (Floats{3, 5, 4}));
  EXPECT_EQ(max_pool3d(ones({1, 2, 4, 6, 8}), 2).shape(), (Shape{1, 2, 2, 3, 4}));
  EXPECT_TRUE(std::isnan(max_pool1d(tensor({{1.0f, std::nanf("")}}), 2).item<float>()));
  EXPECT_EQ(max_pool2d(zeros({0, 3, 4, 4}), 2).sync().shape(), (Shape{0, 3, 2, 2}));
  check_both_orders("max_pool2d", [](const Inputs& in) { return square(max_pool2d(in[0], 2, 1)); },
                    {random_f64({1, 2, 3, 4}, 0.5, 1, true, 3)});
  check_gradients("overlapping", [](const Inputs& in) { return square(max_pool2d(in[0], 3, 2, 1)); },
                  {random_f64({2, 1, 5, 6}, 0.5, 1, true, 3)});
}

TEST_P(Pooling, MaxPoolsGivePositions) {
  const Tensor x = random_f64({2, 3, 7, 8}, 0, 100, true, 5).astype(DType::f32);
  const auto [best, index] = max_pool2d_with_indices(x, 3, 2, 1);
  expect_near(best, max_pool2d(x, 3, 2, 1), 0);
  EXPECT_EQ(index.dtype(), DType::i64);
  const Tensor found = gather(reshape(x, {2, 3, 56}), reshape(index, {2, 3, -1}), 2);
  expect_near(reshape(found, best.shape()), best, 0);
  EXPECT_EQ(max_pool1d_with_indices(tensor({{1.0f, 3.0f, 2.0f, 5.0f}}), 2).indices.to_vector<std::int64_t>(),
            (Integers{1, 3}));
}

TEST_P(Pooling, AveragePools) {
  const auto add = [](double a, double b) { return a + b; };
  const Tensor x = random_f64({2, 3, 9, 8}, 0, 1, true, 1), one = ones_like(x);
  const auto sums = [&](const Tensor& y, int k, int s, int p, std::int64_t h, std::int64_t w) {
    return pooled(y, k, s, p, 1, h, w, 0, add);
  };
  expect_near(avg_pool2d(x, 2), sums(x, 2, 2, 0, 4, 4) / 4);
  expect_near(avg_pool2d(x, 3, 2, 1), sums(x, 3, 2, 1, 5, 4) / 9);
  expect_near(avg_pool2d(x, 3, 2, 1, false, false), sums(x, 3, 2, 1, 5, 4) / sums(one, 3, 2, 1, 5, 4));
  expect_near(avg_pool2d(x, 3, 2, 1, false, true, 5), sums(x, 3, 2, 1, 5, 4) / 5);
  // With ceil_mode what lies beyond the padding is not counted.
  EXPECT_EQ(floats(avg_pool1d(tensor({{2.0f, 4.0f, 6.0f}}), 2, 2, 0, true)), (Floats{3, 6}));
  for (const DType t : {DType::f16, DType::bf16})
    expect_near(avg_pool2d(x.astype(t), 2).astype(DType::f64), avg_pool2d(x, 2), t == DType::f16 ? 2e-3 : 1e-2);
  EXPECT_EQ(avg_pool3d(ones({1, 2, 4, 6, 8}), 2).shape(), (Shape{1, 2, 2, 3, 4}));
  check_both_orders("avg_pool2d", [](const Inputs& in) { return square(avg_pool2d(in[0], 2, 1, 1, false, false)); },
                    {random_f64({1, 2, 3, 4}, 0.5, 1, true, 3)});
}

TEST_P(Pooling, AdaptivePools) {
  const Tensor x = tensor({{1.0f, 2.0f, 3.0f, 4.0f, 5.0f}});
  EXPECT_EQ(floats(adaptive_avg_pool1d(x, 3)), (Floats{1.5f, 3, 4.5f}));
  EXPECT_EQ(floats(adaptive_max_pool1d(x, 3)), (Floats{2, 4, 5}));
  EXPECT_EQ(floats(adaptive_avg_pool1d(x, 2)), (Floats{2, 4}));
  EXPECT_EQ(floats(adaptive_avg_pool1d(x, 7)), (Floats{1, 1.5f, 2.5f, 3, 3.5f, 4.5f, 5}));
  const Tensor image = random_f64({2, 3, 8, 9}, 0, 1, true, 1);
  expect_near(adaptive_avg_pool2d(image, {4, 3}), avg_pool2d(image, {2, 3}));
  expect_near(adaptive_max_pool2d(image, {4, 3}), max_pool2d(image, {2, 3}), 0);
  expect_near(adaptive_avg_pool2d(image, 1), mean(image, {2, 3}, true));
  expect_near(adaptive_avg_pool2d(image, {-1, 9}), image, 0);
  check_both_orders("adaptive",
                    [](const Inputs& in) {
                      return square(adaptive_avg_pool2d(in[0], {2, 3})) + adaptive_max_pool2d(square(in[0]), {2, 3});
                    },
                    {random_f64({1, 2, 3, 4}, 0.5, 1, true, 3)});
}

TEST_P(Pooling, Padding) {
  const Tensor x = tensor({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}});
  EXPECT_EQ(floats(pad(x, {1, 0}, PadMode::constant, 9)), (Floats{9, 1, 2, 3, 9, 4, 5, 6}));
  EXPECT_EQ(floats(pad(x, {-1, 0, 1, 0})), (Floats{0, 0, 2, 3, 5, 6}));
  EXPECT_EQ(floats(pad(x, {2, 1}, PadMode::reflect)), (Floats{3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5}));
  EXPECT_EQ(floats(pad(x, {1, 2}, PadMode::replicate)), (Floats{1, 1, 2, 3, 3, 3, 4, 4, 5, 6, 6, 6}));
  EXPECT_EQ(floats(pad(x, {1, 2}, PadMode::circular)), (Floats{3, 1, 2, 3, 1, 2, 6, 4, 5, 6, 4, 5}));
  EXPECT_EQ(floats(pad(x, {0, 0, 1, 1}, PadMode::circular)), (Floats{4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(floats(pad(zeros({0, 1}), {1, 1, 1, 0}, PadMode::constant, 2)), (Floats{2, 2, 2}));
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    if (!kRealOrBoolean.has(static_cast<DType>(i))) continue;
    for (const auto mode : {PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular})
      EXPECT_EQ(pad(x.astype(static_cast<DType>(i)), {1, 1}, mode).dtype(), static_cast<DType>(i));
  }
  for (const auto mode : {PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    check_both_orders("pad",
                      [=](const Inputs& in) {
                        return square(pad(in[0], {2, 1, 1, 0}, mode));
                      },
                      {random_f64({2, 3}, 0.5, 1, true, 3)});
    check_vmap(
        "pad",
        [=](const Inputs& in) {
          return pad(in[0], {2, 1, 1, 0}, mode);
        },
        {{{random_f64({2, 3}, 0, 1, true, 1), random_f64({2, 3}, 0, 1, true, 2)}, 0}}, 2);
  }
}

TEST_P(Pooling, Interpolation) {
  const Tensor x = reshape(tensor({1.0f, 2.0f, 3.0f, 4.0f}), {1, 1, 4});
  const auto resized = [&](Interpolation mode, std::int64_t size, bool corners = false) {
    return floats(interpolate(x, {.size = {size}, .mode = mode, .align_corners = corners}));
  };
  EXPECT_EQ(resized(Interpolation::nearest, 8), (Floats{1, 1, 2, 2, 3, 3, 4, 4}));
  EXPECT_EQ(resized(Interpolation::nearest, 3), (Floats{1, 2, 3}));
  EXPECT_EQ(resized(Interpolation::nearest_exact, 3), (Floats{1, 3, 4}));
  EXPECT_EQ(resized(Interpolation::linear, 8), (Floats{1, 1.25f, 1.75f, 2.25f, 2.75f, 3.25f, 3.75f, 4}));
  EXPECT_EQ(resized(Interpolation::linear, 7, true), (Floats{1, 1.5f, 2, 2.5f, 3, 3.5f, 4}));
  EXPECT_EQ(resized(Interpolation::area, 2), (Floats{1.5f, 3.5f}));
  // Keys' kernel at a distance of a half: weights -3/32, 19/32, 19/32, -3/32.
  EXPECT_EQ(resized(Interpolation::bicubic, 2),
            (Floats{-3.0f / 32 + 19.0f / 32 * 3 - 9.0f / 32, -6.0f / 32 + 19.0f / 32 * 7 - 12.0f / 32}));
  EXPECT_EQ(floats(interpolate(x, {.scale_factor = {2.5}, .mode = Interpolation::nearest})),
            (Floats{1, 1, 1, 2, 2, 3, 3, 3, 4, 4}));
  const Tensor image = random_f64({2, 3, 4, 5}, 0, 1, true, 1);
  for (const auto mode : {Interpolation::nearest, Interpolation::linear, Interpolation::bicubic, Interpolation::area}) {
    const InterpolateOptions larger{.size = {7, 3}, .mode = mode};
    EXPECT_EQ(interpolate(image, larger).shape(), (Shape{2, 3, 7, 3}));
    EXPECT_EQ(interpolate(image.astype(DType::f16), larger).dtype(), DType::f16);
    check_both_orders("interpolate", [&](const Inputs& in) { return square(interpolate(in[0], larger)); },
                      {random_f64({1, 1, 3, 4}, 0.5, 1, true, 3)});
  }
  expect_near(interpolate(image, {.scale_factor = {1.0}, .mode = Interpolation::bicubic}), image, 0);
  const Tensor shuffled = pixel_shuffle(random_f64({2, 8, 3, 4}, 0, 1, true, 1), 2);
  EXPECT_EQ(shuffled.shape(), (Shape{2, 2, 6, 8}));
  EXPECT_EQ(floats(pixel_shuffle(reshape(arange(4), {4, 1, 1}), 2)), (Floats{0, 1, 2, 3}));
  expect_near(pixel_shuffle(pixel_unshuffle(shuffled, 2), 2), shuffled, 0);
}

TEST_P(Pooling, PoolsAreBatched) {
  const std::uint64_t loops = stats().vmap_loops;
  const BatchOperand x{{random_f64({2, 6, 6}, 0, 1, true, 1), random_f64({2, 6, 6}, 0, 1, true, 2)}, 1};
  check_vmap(
      "max_pool2d", [](const Inputs& in) { return max_pool2d(in[0], 2, 1, 1); }, {x}, 2);
  check_vmap(
      "avg_pool2d", [](const Inputs& in) { return avg_pool2d(in[0], 3, 2, 1, true, false); }, {x}, 2, 0, 1e-12);
  check_vmap(
      "adaptive_avg_pool2d", [](const Inputs& in) { return adaptive_avg_pool2d(in[0], 4); }, {x}, 2, 0, 1e-12);
  check_vmap(
      "max_pool2d_with_indices", [](const Inputs& in) { return max_pool2d_with_indices(in[0], 2).indices; }, {x}, 2);
  EXPECT_EQ(stats().vmap_loops, loops);
}

TEST_P(Pooling, ErrorsNameTheOperands) {
  const Tensor x = zeros({1, 2, 4, 4});
  EXPECT_EQ(message<Error>([&] { unfold(x, 2, 5, 1); }),
            "FM1073 ShapeError: unfold: a window of 5 elements, 1 apart, does not fit axis 2\n"
            "  x    f32[1, 2, 4, 4]   axis 2 is 4\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { unfold(x, 2, 2, 0); }),
            "FM1370 ValueError: unfold: the step is 0, below 1\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              fold(zeros({3, 2}), 0, 9, 2);
            }),
            "FM1075 ShapeError: fold: the windows do not match size [9] along axis 0\n  x    f32[3, 2]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              col2im(zeros({1, 8, 3}), 3, 2);
            }),
            "FM1075 ShapeError: col2im: 2 x 2 windows of 2 x 2\n  x    f32[1, 8, 3]\n  at   HERE");
  EXPECT_EQ(
      message<Error>([&] { max_pool2d(x, 2, 2, 2); }),
      "FM1375 ValueError: max_pool2d: padding of 2 is more than half a window of 2\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { max_pool2d(x, 7); }),
            "FM1073 ShapeError: unfold: a window of 7 elements, 1 apart, does not fit axis 2\n"
            "  x    f32[1, 2, 4, 4]   axis 2 is 4\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { avg_pool2d(x.astype(DType::i32), 2); }),
            "FM1101 DTypeError: avg_pool2d: does not take i32\n  x    i32[1, 2, 4, 4]\n  at   HERE\n"
            "  hint convert it first, for example to f32");
  EXPECT_EQ(message<Error>([&] {
              pad(x, {1, 2, 3});
            }),
            "FM1374 ValueError: pad: 3 numbers; expected two per padded axis\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(
      message<Error>([&] {
        pad(x, {4, 0}, PadMode::reflect);
      }),
      "FM1077 ShapeError: pad: 4 elements along axis 3 of size 4, at most 3\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              pad(x, {-3, -2});
            }),
            "FM1077 ShapeError: pad: -3 and -2 leave no elements of axis 3\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(
      message<Error>([&] { interpolate(x, {}); }),
      "FM1374 ValueError: interpolate: requires either a size or a scale factor\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              interpolate(x, {.size = {2, 3, 4}});
            }),
            "FM1374 ValueError: interpolate: 3 numbers for 2 spatial axes\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { interpolate(x, {.size = {0}}); }),
            "FM1077 ShapeError: interpolate: no elements along axis 2\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { pixel_shuffle(x, 2); }),
            "FM1077 ShapeError: pixel_shuffle: [.., C * 2 * 2, H, W]\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { adaptive_avg_pool2d(x, 0); }),
            "FM1077 ShapeError: adaptive_avg_pool2d: 0 windows along axis 2\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(sum(max_pool2d(x + 1, 2)).item<float>(), 8);  // the engine still works
}

TEST(PoolingFusion, APoolFusesWithWhatComesBeforeAndAfter) {
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = randn({2, 3, 8, 8}), bias = randn({3, 1, 1});
  sync({x, bias});
  const Tensor y = relu(max_pool2d(x + bias, 2) * 2);  // its temporaries are gone
  const std::string plan = explain(y);
  EXPECT_NE(plan.find("step 0: kernel"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("step 1:"), std::string::npos) << plan;
}

}  // namespace
}  // namespace fermata

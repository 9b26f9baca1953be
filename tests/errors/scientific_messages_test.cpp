// The errors of special functions, statistics, signals and solvers, as full text, in both modes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fermata/fermata.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using fermata::testing::message;

class ScientificErrors : public ::testing::TestWithParam<Mode> {
 protected:
  ~ScientificErrors() override { EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2})); }
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, ScientificErrors, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(ScientificErrors, Values) {
  const Tensor x = ones({5});
  EXPECT_EQ(message<ValueError>([&] { polygamma(-1, x); }),
            "FM1410 ValueError: polygamma: -1 derivatives\n"
            "  n    -1   should be 0 to 170\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { histogram(x, 0); }),
            "FM1411 ValueError: histogram: 0 bins\n"
            "  x    f32[5]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              histogram(x, 3, {{2.0, 1.0}});
            }),
            "FM1411 ValueError: histogram: the range from 2 to 1 is not ascending\n"
            "  x    f32[5]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { kthvalue(x, 6); }),
            "FM1412 ValueError: kthvalue: k is 6, not 1 to 5\n"
            "  x    f32[5]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              pdist(ones({2, 2}), -1);
            }),
            "FM1413 ValueError: pdist: unsupported order -1\n"
            "  x    f32[2, 2]\n"
            "  at   HERE\n"
            "  hint p must be 0 or more, or infinite");
  EXPECT_EQ(message<ValueError>([] { hann_window(-2); }),
            "FM1414 ValueError: hann_window: -2 samples\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { stft(x, 16); }),
            "FM1415 ValueError: stft: frames of 16 samples of a signal of 5\n"
            "  x    f32[5]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { dct(x, 5); }),
            "FM1416 ValueError: dct: no transform of type 5 of 5 elements\n"
            "  x    f32[5]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              odeint([](double, const Tensor& y, std::span<const Tensor>) { return y; }, x, {0, 2, 1, 3});
            }),
            "FM1417 ValueError: odeint: times 2 and 1 are not in order\n"
            "  start f32[5]\n"
            "  at    HERE");
  EXPECT_EQ(message<ValueError>([&] {
              const CubicSpline spline(arange(5.0), x);
              spline(x, 4);
            }),
            "FM1418 ValueError: CubicSpline: a derivative of order 4, not 0 to 3\n"
            "  x    f32[5]\n"
            "  at   HERE");
}

TEST_P(ScientificErrors, ShapesAndDTypes) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(message<ShapeError>([&] { sum(x, 1, false, ones({2}, DType::boolean)); }),
            "FM1001 ShapeError: sum: the mask does not broadcast to x\n"
            "  x    f32[2, 3]\n"
            "  mask bool[2]\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] { segment_sum(x, ones({3}, DType::i64), 2); }),
            "FM1021 ShapeError: segment_sum: segments must have one number per slice\n"
            "  x        f32[2, 3]\n"
            "  segments i64[3]\n"
            "  at       HERE");
  EXPECT_EQ(message<DTypeError>([&] { gcd(x, x); }),
            "FM1101 DTypeError: gcd: does not take f32\n"
            "  at   HERE\n"
            "  hint it takes integers");
  EXPECT_EQ(message<ShapeError>([&] { linalg::eig(x); }),
            "FM1090 ShapeError: eig: the matrix is not square\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
}

}  // namespace
}  // namespace fermata

// resize() against ONNX's reference and PyTorch (golden/resize.txt, which golden/write_resize.py writes), its
// derivatives, its batching, its errors.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "fermata/fermata.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using testing::message;
using namespace testing;

using Resizing = InBothModes;
INSTANTIATE_TEST_SUITE_P(Modes, Resizing, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

/// A line of the file, read field by field.
class GoldenLine {
 public:
  explicit GoldenLine(const std::string& line) : in_(line) {}
  template <class T> T number() {
    T value{};
    in_ >> value;
    EXPECT_FALSE(in_.fail());
    return value;
  }
  template <class T> T choice() { return static_cast<T>(number<int>()); }
  template <class T> std::vector<T> list() {
    std::vector<T> all(number<std::size_t>());
    for (T& one : all) one = number<T>();
    return all;
  }
  Tensor tensor() {
    const auto sizes = list<std::int64_t>();
    const Shape shape{std::span<const std::int64_t>(sizes)};
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (double& v : values) v = number<double>();
    return fermata::tensor(values, shape);
  }

 private:
  std::istringstream in_;
};

TEST_P(Resizing, AgreesWithOnnxAndPyTorch) {
  std::ifstream file(fermata::test_folder() + "/frontend/golden/resize.txt");
  std::string text;
  int cases = 0;
  for (; std::getline(file, text); ++cases) {
    GoldenLine line(text);
    SCOPED_TRACE(line.number<std::string>());
    ResizeOptions o;
    // Sizes may be written with a fraction of zero.
    for (const double size : line.list<double>()) o.size.push_back(static_cast<std::int64_t>(size));
    o.scale = line.list<double>(), o.axes = line.list<std::int64_t>();
    o.mode = line.choice<ResizeMode>(), o.coordinates = line.choice<ResizeCoordinates>();
    o.nearest = line.choice<NearestRule>(), o.cubic_coefficient = line.number<double>();
    o.antialias = line.number<int>() != 0, o.exclude_outside = line.number<int>() != 0;
    o.aspect_ratio = line.choice<AspectRatio>(), o.roi = line.list<double>();
    o.extrapolation_value = line.number<double>();
    const Tensor x = line.tensor(), y = line.tensor();
    expect_close(resize(x, o), y, 2e-6);  // ONNX computes in f32
    const Tensor half = resize(x.astype(DType::f16), o);
    EXPECT_EQ(half.dtype(), DType::f16);
    expect_close(half.astype(DType::f64), y, 2e-2);
    expect_close(resize(x.astype(DType::f32), o).astype(DType::f64), y, 2e-5);
  }
  EXPECT_EQ(cases, 63);
}

TEST_P(Resizing, InterpolateIsACaseOfIt) {
  const Tensor x = random_f64({2, 3, 8, 9}, 0, 1, true, 1);
  expect_close(
      interpolate(x, {.size = {3, 4}, .mode = Interpolation::linear, .antialias = true}),
      resize(x,
             {.size = {3, 4}, .axes = {2, 3}, .mode = ResizeMode::linear, .antialias = true, .exclude_outside = true}));
  expect_close(interpolate(x, {.scale_factor = {1.5, 2}, .mode = Interpolation::bicubic}),
               resize(x, {.scale = {2, 1.5}, .axes = {-1, 2}, .mode = ResizeMode::cubic}), 1e-12);
  expect_close(interpolate(x, {.size = {5, 5}}), resize(x, {.size = {5, 5},
                                                            .axes = {2, 3},
                                                            .coordinates = ResizeCoordinates::asymmetric,
                                                            .nearest = NearestRule::floor}));
}

TEST_P(Resizing, NearestTakesAnyDtype) {
  for (const DType dtype : {DType::boolean, DType::u8, DType::i64, DType::bf16, DType::c64}) {
    const Tensor x = tensor({1, 0, 2}).astype(dtype), y = resize(x, {.size = {6}});
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_TRUE(array_equal(y, repeat(x, 2, 0)));
  }
}

TEST_P(Resizing, IsDifferentiatedAndBatched) {
  const std::uint64_t loops = stats().vmap_loops;
  for (const bool antialias : {false, true})
    for (const ResizeMode mode : {ResizeMode::nearest, ResizeMode::linear, ResizeMode::cubic}) {
      const ResizeOptions smaller{.size = {2, 5}, .mode = mode, .antialias = antialias};
      check_both_orders("resize", [&](const Inputs& in) { return square(resize(in[0], smaller)); },
                        {random_f64({5, 4}, 0.5, 1, true, 3)});
      check_vmap(
          "resize", [&](const Inputs& in) { return resize(in[0], smaller); },
          {{{random_f64({5, 4}, 0, 1, true, 1), random_f64({5, 4}, 0, 1, true, 2)}, 1}}, 2, 0, 1e-12);
    }
  EXPECT_EQ(stats().vmap_loops, loops);
}

TEST_P(Resizing, ErrorsNameTheOperands) {
  const Tensor x = zeros({4, 4});
  EXPECT_EQ(message<Error>([&] { resize(x, {}); }),
            "FM1374 ValueError: resize: requires either a size or a scale factor\n  x    f32[4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] { resize(x, {.size = {3}}); }),
            "FM1374 ValueError: resize: 1 numbers for 2 axes\n  x    f32[4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              resize(x, {.size = {3, 3}, .axes = {0, -2}});
            }),
            "FM1374 ValueError: resize: axis 0 twice\n  x    f32[4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              resize(x, {.size = {3, 3}, .coordinates = ResizeCoordinates::tf_crop_and_resize, .roi = {0, 1}});
            }),
            "FM1374 ValueError: resize: 2 numbers for a region of 2 axes\n  x    f32[4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              resize(x, {.scale = {0.1, 1}});
            }),
            "FM1077 ShapeError: resize: no elements along axis 0\n  x    f32[4, 4]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              resize(x.astype(DType::i32), {.size = {3, 3}, .mode = ResizeMode::linear});
            }),
            "FM1101 DTypeError: resize: does not take i32\n  x    i32[4, 4]\n  at   HERE\n"
            "  hint convert it first, for example to f32");
  EXPECT_EQ(resize(x, {.size = {2, 2}}).shape(), (Shape{2, 2}));  // the engine still works
}

TEST_P(Resizing, ChannelsAreShuffled) {
  const Tensor x = astype(arange(12), DType::f64).reshape({1, 6, 2});
  EXPECT_EQ(channel_shuffle(x.reshape({1, 6, 1, 2}), 2).to_vector<double>(),
            (std::vector<double>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
  EXPECT_EQ(channel_shuffle(x.reshape({6, 2, 1}), 3).to_vector<double>(),
            (std::vector<double>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
  EXPECT_EQ(message<Error>([&] {
              channel_shuffle(x.reshape({1, 6, 2, 1}), 4);
            }),
            "FM1077 ShapeError: channel_shuffle: channels in 4 groups\n  x    f64[1, 6, 2, 1]\n  at   HERE");
}

}  // namespace
}  // namespace fermata

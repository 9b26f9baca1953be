// Samples of images, choices of boxes and pools at computed places against PyTorch, torchvision and ONNX's reference:
// golden/images.safetensors, which golden/write_images.py writes. Derivatives, batching, errors.
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/reference_call.h"
#include "tests/frontend/vmap_check.h"
#include "tests/test_folder.h"

namespace fermata {
namespace {

using testing::message;
using namespace testing;

const NamedTensors& golden() {
  static const NamedTensors values = load_safetensors(fermata::test_folder() + "/frontend/golden/images.safetensors");
  return values;
}
/// A case of the file.
struct Case {
  explicit Case(const std::string& case_name) : name(case_name) {}
  Tensor x(int k) const { return golden().at(name + "/x" + std::to_string(k)); }
  Tensor y(int k = 0) const { return golden().at(name + "/y" + std::to_string(k)); }
  std::vector<double> options() const { return golden().at(name + "/o").to_vector<double>(); }
  std::string name;
};
/// All whose names begin so; there are some.
std::vector<Case> cases(const std::string& prefix) {
  std::vector<Case> all;
  for (const auto& [key, value] : golden())
    if (key.starts_with(prefix) && key.ends_with("/x0")) all.emplace_back(key.substr(0, key.size() - 3));
  EXPECT_FALSE(all.empty()) << prefix;
  return all;
}

using Sampled = InBothModes;
INSTANTIATE_TEST_SUITE_P(Modes, Sampled, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

GridSampleOptions grid_options(const Case& c) {
  const auto o = c.options();
  return {static_cast<Sampling>(o[0]), static_cast<SamplePadding>(o[1]), o[2] != 0};
}

TEST_P(Sampled, GridsAgreeWithPyTorch) {
  for (const Case& c : cases("grid_sample")) {
    SCOPED_TRACE(c.name);
    expect_close(grid_sample(c.x(0), c.x(1), grid_options(c)), c.y(), 1e-10);
  }
  // Many channels at once, and each by itself.
  const Tensor x = random_f64({2, 33, 5, 4}, 0, 1, true, 1), grid = random_f64({2, 3, 6, 2}, 0, 1.2, true, 2);
  for (const Sampling mode : {Sampling::nearest, Sampling::linear, Sampling::cubic}) {
    const Tensor whole = grid_sample(x, grid, {mode});
    for (std::int64_t c = 0; c < 33; ++c)
      expect_close(whole.slice(1, c, c + 1), grid_sample(x.slice(1, c, c + 1), grid, {mode}), 1e-12);
    expect_close(whole.slice(0, 1).slice(1, 0, 2), grid_sample(x.slice(0, 1).slice(1, 0, 2), grid.slice(0, 1), {mode}),
                 1e-12);
  }
  for (const Case& c : cases("affine_grid")) {
    const Shape shape = c.y().shape();
    std::vector<std::int64_t> size{shape[0], 3};
    for (unsigned i = 1; i + 1 < shape.rank(); ++i) size.push_back(shape[i]);
    for (const bool corners : {false, true}) expect_close(affine_grid(c.x(0), size, corners), c.y(corners), 1e-12);
  }
}

/// Every combination of options and numbers of axes, compared with a separately written reference.
TEST_P(Sampled, GridsAgreeWithTheReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Shape& shape : {Shape{2, 3, 7}, Shape{2, 3, 5, 4}, Shape{1, 2, 4, 1, 3}, Shape{1, 1, 2, 3, 2, 3}})
      for (const Sampling mode : {Sampling::nearest, Sampling::linear, Sampling::cubic})
        for (const SamplePadding padding : {SamplePadding::zeros, SamplePadding::border, SamplePadding::reflection})
          for (const bool corners : {false, true}) {
            const std::int64_t axes = static_cast<std::int64_t>(shape.rank()) - 2;
            const Tensor x = astype(random_f64(shape, 0, 1, true, 1), dtype),
                         grid = astype(random_f64({shape[0], 150, axes}, 0, 1.7, true, 2), dtype);
            const Tensor got = grid_sample(x, grid, {mode, padding, corners});
            expect_near(got,
                        reference(Op::grid_sample, {x, grid}, {dtype, got.shape()},
                                  {static_cast<std::int64_t>(mode), static_cast<std::int64_t>(padding), corners}),
                        dtype == DType::f32 ? 2e-5 : 1e-12);
          }
  // Views, and halves.
  const Tensor x = random_f64({2, 4, 6, 5}, 0, 1, true, 1), grid = random_f64({2, 3, 7, 2}, 0, 1.2, true, 2);
  expect_close(grid_sample(permute(copy(permute(x, {3, 1, 0, 2})), {2, 1, 3, 0}), flip(copy(flip(grid)))),
               grid_sample(x, grid), 0);
  const Tensor half = grid_sample(astype(x, DType::bf16), grid);
  EXPECT_EQ(half.dtype(), DType::bf16);
  expect_close(astype(half, DType::f64), grid_sample(x, grid), 0.05);
  EXPECT_EQ(grid_sample(x, zeros({2, 0, 3, 2}, DType::f64)).shape(), (Shape{2, 4, 0, 3}));
}

TEST_P(Sampled, PlacesFarOutsideAndNaN) {
  const Tensor x = ones({1, 1, 2, 2}), grid = tensor({1e30f, -1e30f, NAN, 0.0f, INFINITY, 0.0f}).reshape({1, 1, 3, 2});
  for (const Sampling mode : {Sampling::nearest, Sampling::linear, Sampling::cubic})
    for (const SamplePadding padding : {SamplePadding::zeros, SamplePadding::border, SamplePadding::reflection})
      EXPECT_EQ(grid_sample(x, grid, {mode, padding}).sync().shape(), (Shape{1, 1, 1, 3}));
  EXPECT_EQ(grid_sample(x, grid)[0][0][0][0].item<float>(), 0);
}

TEST_P(Sampled, RegionsAgreeWithTorchvisionAndOnnx) {
  for (const Case& c : cases("roi_align")) {
    SCOPED_TRACE(c.name);
    if (c.name == "roi_align_max") {
      expect_close(
          roi_align(c.x(0), c.x(1), c.x(2), {.output_size = {5}, .sampling_ratio = 2, .mode = RegionPooling::max}),
          c.y(), 1e-4);  // four digits
      continue;
    }
    const auto o = c.options();
    const Tensor boxes = c.x(1);
    expect_close(roi_align(c.x(0), boxes.slice(1, 1), select(boxes, 1, 0).astype(DType::i64),
                           {.output_size = {3, 2},
                            .spatial_scale = 0.75,
                            .sampling_ratio = static_cast<std::int64_t>(o[0]),
                            .aligned = o[1] != 0}),
                 c.y(), 1e-10);
  }
}

TEST_P(Sampled, DeformedConvolutionsAgreeWithTorchvision) {
  for (const Case& c : cases("deform_conv")) {
    SCOPED_TRACE(c.name);
    std::vector<std::int64_t> o;
    for (const double v : c.options()) o.push_back(static_cast<std::int64_t>(v));
    const Tensor mask = golden().contains(c.name + "/x4") ? c.x(4) : Tensor();
    expect_close(
        deform_conv(c.x(0), c.x(1), c.x(2), c.x(3), mask,
                    {.stride = {o[1], o[2]}, .padding = {o[3], o[4]}, .dilation = {o[5], o[6]}, .groups = o[0]}),
        c.y(), 1e-10);
  }
  // Without offsets it is a convolution, of any number of axes.
  const Tensor x = random_f64({2, 4, 6}, 0, 1, true, 1), w = random_f64({2, 4, 3}, 0, 1, true, 2);
  expect_close(deform_conv(x, w, zeros({2, 3, 6}, DType::f64), {}, {}, {.padding = {1}}), conv1d(x, w, {}, 1, 1),
               1e-12);
  EXPECT_EQ(deform_conv(x.astype(DType::f16), w.astype(DType::f16), zeros({2, 3, 4}, DType::f16)).dtype(), DType::f16);
}

TEST_P(Sampled, BoxesAreChosenAsTorchvisionAndOnnxDo) {
  for (const Case& c : cases("nms_")) {
    SCOPED_TRACE(c.name);
    const Tensor kept = nms(c.x(0), c.x(1), c.options()[0]), padded = nms(c.x(0), c.x(1), c.options()[0], 55);
    EXPECT_TRUE(array_equal(kept, c.y()));
    EXPECT_TRUE(array_equal(padded.slice(0, 0, kept.size(0)), kept));
    EXPECT_TRUE(all(padded.slice(0, kept.size(0)) == -1).item<bool>());
    const auto fixed =
        compile([&](const Tensor& boxes, const Tensor& scores) { return nms(boxes, scores, c.options()[0], 55); });
    EXPECT_TRUE(array_equal(fixed(c.x(0), c.x(1)), padded));
  }
  for (const Case& c : cases("nonmaxsuppression")) {
    SCOPED_TRACE(c.name);
    const auto o = c.options();
    EXPECT_TRUE(array_equal(non_max_suppression(c.x(0), c.x(1),
                                                {.max_output_boxes_per_class = static_cast<std::int64_t>(o[0]),
                                                 .iou_threshold = o[1],
                                                 .score_threshold = o[2],
                                                 .center_point_box = o[3] != 0}),
                            c.y()));
  }
  EXPECT_EQ(nms(zeros({0, 4}), zeros({0}), 0.5).shape(), Shape{0});
  EXPECT_EQ(non_max_suppression(zeros({1, 0, 4}), zeros({1, 2, 0}), {}).shape(), (Shape{0, 3}));
}

TEST_P(Sampled, PoolsGiveThePositionsThatPyTorchGives) {
  using Pool = PooledWithIndices (*)(const Tensor&, const IntegerList&, const IntegerList&, const IntegerList&,
                                     const IntegerList&, bool, Location);
  const Pool pools[] = {max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices};
  using Adaptive = PooledWithIndices (*)(const Tensor&, const IntegerList&, Location);
  const Adaptive adaptives[] = {adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices,
                                adaptive_max_pool3d_with_indices};
  using Unpool = Tensor (*)(const Tensor&, const Tensor&, const IntegerList&, const IntegerList&, const IntegerList&,
                            const IntegerList&, Location);
  const Unpool unpools[] = {max_unpool1d, max_unpool2d, max_unpool3d};
  using Mean = Tensor (*)(const Tensor&, const IntegerList&, Location);
  const Mean means[] = {adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d};
  using Norm = Tensor (*)(const Tensor&, double, const IntegerList&, const IntegerList&, bool, Location);
  const Norm norms[] = {lp_pool1d, lp_pool2d, lp_pool3d};
  const Location here = Location::current();
  for (const std::size_t i : {0u, 1u, 2u}) {
    const std::string d = std::to_string(i + 1) + "d";
    SCOPED_TRACE(d);
    const auto same = [&](const PooledWithIndices& found, const Case& c) {
      EXPECT_TRUE(array_equal(found.values, c.y(0)));
      EXPECT_TRUE(array_equal(found.indices, c.y(1)));
    };
    const Case pool("max_pool" + d), unpool("max_unpool" + d), adaptive("adaptive" + d), norm("lp_pool" + d);
    same(pools[i](pool.x(0), 3, 2, 1, 1, false, here), pool);
    same(adaptives[i](adaptive.x(0), 3, here), adaptive);
    expect_close(means[i](adaptive.x(0), 3, here), adaptive.y(2), 1e-12);
    const Shape whole = unpool.y().shape();
    const IntegerList sizes{std::span<const std::int64_t>(whole.data() + 2, i + 1)};
    EXPECT_TRUE(array_equal(unpools[i](unpool.x(0), unpool.x(1), 2, 2, 0, sizes, here), unpool.y()));
    expect_close(norms[i](norm.x(0), 2, 2, {}, false, here), norm.y(0), 1e-12);
    expect_close(norms[i](norm.x(0), 3, 3, 2, true, here), norm.y(1), 1e-12);
    if (i == 0) continue;
    const Case fractional("fractional" + d);
    same(i == 1 ? fractional_max_pool2d(fractional.x(0), 2, 3, fractional.x(1))
                : fractional_max_pool3d(fractional.x(0), 2, 3, fractional.x(1)),
         fractional);
  }
  EXPECT_EQ(max_unpool2d(ones({3, 2, 2}), zeros({3, 2, 2}, DType::i64), 2).shape(), (Shape{3, 4, 4}));
  EXPECT_EQ(fractional_max_pool2d(ones({3, 7, 7}), 2, 3).values.shape(), (Shape{3, 3, 3}));
}

TEST_P(Sampled, HasGradients) {
  const Tensor x = random_f64({1, 2, 3, 4}, 0.5, 1, true, 3), grid = random_f64({1, 2, 2, 2}, 0.1, 0.9, true, 4);
  for (const Sampling mode : {Sampling::linear, Sampling::cubic})
    for (const SamplePadding padding : {SamplePadding::zeros, SamplePadding::border, SamplePadding::reflection})
      check_gradients("grid_sample",
                      [&](const Inputs& in) {
                        return square(grid_sample(in[0], in[1], {mode, padding}));
                      },
                      {x, grid});
  check_both_orders("grid_sample", [&](const Inputs& in) { return square(grid_sample(in[0], in[1])); },
                    {x, grid.slice(1, 0, 1)});
  check_both_orders("affine_grid",
                    [](const Inputs& in) {
                      return square(affine_grid(in[0], {1, 1, 2, 3}));
                    },
                    {random_f64({1, 2, 3}, 0, 1, true, 1)});
  const Tensor boxes = tensor({{0.3, 0.2, 2.4, 1.9}}).astype(DType::f64), image = tensor({0});
  check_gradients(
      "roi_align",
      [&](const Inputs& in) {
        return square(roi_align(in[0], in[1], image, {.output_size = {2}, .sampling_ratio = 2, .aligned = true}));
      },
      {x, boxes}, 1e-6);
  check_gradients(
      "deform_conv", [&](const Inputs& in) { return square(deform_conv(in[0], in[1], in[2], in[3], in[4])); },
      {x, random_f64({2, 2, 2, 2}, 0, 1, true, 5), random_f64({1, 8, 2, 3}, 0.1, 0.4, true, 6),
       random_f64({2}, 0, 1, true, 7), random_f64({1, 4, 2, 3}, 0, 1, true, 8)},
      1e-6);
  check_both_orders("pools",
                    [](const Inputs& in) {
                      return square(adaptive_max_pool2d_with_indices(in[0], 2).values) +
                             square(fractional_max_pool2d(in[0], 1, 2, full({1, 2, 2}, 0.5, DType::f64)).values) +
                             square(lp_pool2d(square(in[0]), 2, 2, 1)).slice(2, 0, 2).slice(3, 0, 2);
                    },
                    {random_f64({1, 2, 3, 4}, 0.5, 1, false, 3)});
  check_both_orders("max_unpool2d",
                    [](const Inputs& in) {
                      const auto [values, indices] = max_pool2d_with_indices(in[0], 2);
                      return square(max_unpool2d(values, indices, 2));
                    },
                    {random_f64({1, 2, 4, 4}, 0.5, 1, true, 3)});
}

TEST_P(Sampled, IsBatched) {
  const auto pair = [](const Shape& shape, double high = 1) {
    return BatchOperand{{random_f64(shape, 0, high, true, 1), random_f64(shape, 0, high, true, 2)}, 0};
  };
  check_vmap(
      "grid_sample", [](const Inputs& in) { return grid_sample(in[0], in[1]); },
      {pair({1, 2, 3, 4}), pair({1, 2, 2, 2})}, 2, 0, 1e-12);
  check_vmap(
      "deform_conv", [](const Inputs& in) { return deform_conv(in[0], in[1], in[2]); },
      {pair({1, 2, 3, 4}), pair({2, 2, 2, 2}), pair({1, 8, 2, 3})}, 2, 0, 1e-12);
  check_vmap(
      "adaptive", [](const Inputs& in) { return adaptive_max_pool2d_with_indices(in[0], 2).values; }, {pair({2, 3, 4})},
      2);
  const BatchOperand boxes{{tensor({{0.0, 0.0, 2.0, 2.0}, {0.5, 0.0, 2.0, 2.0}, {3.0, 3.0, 4.0, 4.0}}),
                            tensor({{0.0, 0.0, 2.0, 2.0}, {1.5, 0.0, 4.0, 2.0}, {3.0, 3.0, 4.0, 4.0}})},
                           0};
  check_vmap(
      "nms", [](const Inputs& in) { return nms(in[0], in[1], 0.5, 3); }, {boxes, pair({3})}, 2);
}

TEST_P(Sampled, ErrorsNameTheOperands) {
  const Tensor x = zeros({1, 2, 4, 4});
  EXPECT_EQ(message<Error>([&] {
              grid_sample(x, zeros({1, 3, 3, 3}));
            }),
            "FM1077 ShapeError: grid_sample: x [N, C, ..S] and grid [N, .., axes of S] do not match\n"
            "  x    f32[1, 2, 4, 4]\n  grid f32[1, 3, 3, 3]\n  at   HERE");
  EXPECT_EQ(message<Error>([&] {
              affine_grid(zeros({1, 2, 3}), {1, 2, 3});
            }),
            "FM1077 ShapeError: affine_grid: theta [N, A, A + 1] and 3 sizes do not match\n"
            "  theta f32[1, 2, 3]\n  at    HERE");
  EXPECT_EQ(message<Error>([&] {
              roi_align(x, zeros({3, 5}), zeros({3}, DType::i64));
            }),
            "FM1077 ShapeError: roi_align: x [N, C, H, W], boxes [R, 4] and batch_indices [R] do not match\n"
            "  x       f32[1, 2, 4, 4]\n  boxes   f32[3, 5]\n  indices i64[3]\n  at      HERE");
  EXPECT_EQ(message<Error>([&] {
              deform_conv(x, zeros({2, 2, 3, 3}), zeros({1, 18, 3, 3}));
            }),
            "FM1077 ShapeError: deform_conv: offset has size 3 along spatial axis 0, not 2\n"
            "  x      f32[1, 2, 4, 4]\n  weight f32[2, 2, 3, 3]\n  offset f32[1, 18, 3, 3]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] {
              nms(zeros({3, 4}), zeros({2}), 0.5);
            }),
            "FM1077 ShapeError: nms: boxes [n, 4] and scores [n] do not match\n"
            "  boxes  f32[3, 4]\n  scores f32[2]\n  at     HERE");
  EXPECT_EQ(message<Error>([&] {
              max_unpool2d(x, zeros({1, 2, 4, 3}, DType::i64), 2);
            }),
            "FM1077 ShapeError: max_unpool2d: indices must have the shape of x\n"
            "  x       f32[1, 2, 4, 4]\n  indices i64[1, 2, 4, 3]\n  at      HERE");
  EXPECT_EQ(message<Error>([&] {
              max_unpool2d(x, full({1, 2, 4, 4}, 64, DType::i64), 2).sync();
            }).substr(0, 6),
            "FM1204");
  EXPECT_EQ(
      message<Error>([&] { fractional_max_pool2d(x, 2, 4); }),
      "FM1077 ShapeError: fractional_max_pool2d: 4 windows of 2 along axis 2\n  x    f32[1, 2, 4, 4]\n  at   HERE");
  EXPECT_EQ(sum(grid_sample(x + 1, zeros({1, 1, 1, 2}))).item<float>(), 2);  // the engine still works
}

}  // namespace
}  // namespace fermata

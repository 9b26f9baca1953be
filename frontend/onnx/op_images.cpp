// Images: other sizes, samples at coordinates, boxes.
#include <algorithm>
#include <array>
#include <cmath>

#include "fermata/creation.h"
#include "fermata/indexing.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/reductions.h"
#include "fermata/resampling.h"
#include "fermata/sampling.h"
#include "fermata/views.h"
#include "frontend/onnx/operators.h"
#include "frontend/onnx/windows.h"

namespace fermata::onnx {
namespace {

using Integers = std::vector<std::int64_t>;

ResizeCoordinates coordinates_of(const NodeCall& c, const std::string& name) {
  if (name == "half_pixel") return ResizeCoordinates::half_pixel;
  if (name == "half_pixel_symmetric") return ResizeCoordinates::half_pixel_symmetric;
  if (name == "pytorch_half_pixel") return ResizeCoordinates::pytorch_half_pixel;
  if (name == "align_corners") return ResizeCoordinates::align_corners;
  if (name == "asymmetric") return ResizeCoordinates::asymmetric;
  if (name == "tf_half_pixel_for_nn") return ResizeCoordinates::tf_half_pixel_for_nearest;
  if (name == "tf_crop_and_resize") return ResizeCoordinates::tf_crop_and_resize;
  c.refuse("coordinate_transformation_mode '" + name + "' is not supported");
}
ResizeMode mode_of(const NodeCall& c, const std::string& name) {
  if (name == "nearest") return ResizeMode::nearest;
  if (name == "linear") return ResizeMode::linear;
  if (name == "cubic") return ResizeMode::cubic;
  c.refuse("mode '" + name + "' is not supported");
}
NearestRule nearest_of(const NodeCall& c, const std::string& name) {
  if (name == "round_prefer_floor") return NearestRule::round_prefer_floor;
  if (name == "round_prefer_ceil") return NearestRule::round_prefer_ceil;
  if (name == "floor") return NearestRule::floor;
  if (name == "ceil") return NearestRule::ceil;
  c.refuse("nearest_mode '" + name + "' is not supported");
}

void resize_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const bool is_first = c.opset() < 11;  // operands are x and scales, and the coordinates asymmetric
  ResizeOptions options{.mode = mode_of(c, c.attr("mode", "nearest"))};
  options.coordinates = is_first ? ResizeCoordinates::asymmetric
                                 : coordinates_of(c, c.attr("coordinate_transformation_mode", "half_pixel"));
  options.nearest = is_first ? NearestRule::floor : nearest_of(c, c.attr("nearest_mode", "round_prefer_floor"));
  options.cubic_coefficient = c.attr("cubic_coeff_a", -0.75);
  options.antialias = c.attr("antialias", std::int64_t{0}) != 0;
  options.exclude_outside = c.attr("exclude_outside", std::int64_t{0}) != 0;
  options.extrapolation_value = c.attr("extrapolation_value", 0.0);
  const std::string policy = c.attr("keep_aspect_ratio_policy", "stretch");
  options.aspect_ratio = policy == "not_larger"    ? AspectRatio::not_larger
                         : policy == "not_smaller" ? AspectRatio::not_smaller
                                                   : AspectRatio::stretch;
  const std::size_t scales = is_first ? 1 : 2;
  if (c.has(scales) && c.value(scales).tensor().element_count() > 0) options.scale = c.numbers(scales);
  if (c.has(3) && c.value(3).tensor().element_count() > 0) options.size = c.integers(3), options.scale.clear();
  if (c.has(1) && options.coordinates == ResizeCoordinates::tf_crop_and_resize) options.roi = c.numbers(1);
  Integers axes = c.attr_integers("axes");
  if (axes.empty())
    for (unsigned i = 0; i < x.rank(); ++i) axes.push_back(i);
  // Axes that stay as they are cost nothing then.
  if (options.roi.empty() && options.aspect_ratio == AspectRatio::stretch) {
    const std::size_t count = std::max(options.scale.size(), options.size.size());
    if (count != axes.size()) c.fail("the number of sizes differs from the number of axes");
    ResizeOptions rest = options;
    rest.scale.clear(), rest.size.clear();
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const bool stays = options.size.empty() ? options.scale[i] == 1 : options.size[i] == x.size(axes[i]);
      if (stays) continue;
      rest.axes.push_back(axes[i]);
      if (options.size.empty())
        rest.scale.push_back(options.scale[i]);
      else
        rest.size.push_back(options.size[i]);
    }
    if (rest.axes.empty()) return c.give(x);
    return c.give(resize(x, rest, c.where));
  }
  options.axes = axes;
  c.give(resize(x, options, c.where));
}
void upsample_op(NodeCall& c) {
  ResizeOptions options{.mode = mode_of(c, c.attr("mode", "nearest")),
                        .coordinates = ResizeCoordinates::asymmetric,
                        .nearest = NearestRule::floor};
  options.scale = c.has(1) ? c.numbers(1) : c.attr_numbers("scales");
  c.give(resize(c.in(0), options, c.where));
}

void grid_sample_op(NodeCall& c) {
  const std::string mode = c.attr("mode", "linear"), padding = c.attr("padding_mode", "zeros");
  GridSampleOptions options;
  options.mode = mode == "nearest"                 ? Sampling::nearest
                 : mode.find("cubic") != mode.npos ? Sampling::cubic
                                                   : Sampling::linear;
  options.padding = padding == "border"       ? SamplePadding::border
                    : padding == "reflection" ? SamplePadding::reflection
                                              : SamplePadding::zeros;
  options.align_corners = c.attr("align_corners", std::int64_t{0}) != 0;
  c.give(grid_sample(c.in(0), c.in(1), options, c.where));
}
void affine_grid_op(NodeCall& c) {
  c.give(affine_grid(c.in(0), c.integers(1), c.attr("align_corners", std::int64_t{0}) != 0, c.where));
}

void roi_align_op(NodeCall& c) {
  RoiAlignOptions options;
  options.output_size = {c.attr("output_height", std::int64_t{1}), c.attr("output_width", std::int64_t{1})};
  options.spatial_scale = c.attr("spatial_scale", 1.0);
  options.sampling_ratio = c.attr("sampling_ratio", std::int64_t{0});
  options.aligned = c.opset() >= 16 && c.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  options.mode = c.attr("mode", "avg") == "max" ? RegionPooling::max : RegionPooling::average;
  c.give(roi_align(c.in(0), c.in(1), c.in(2), options, c.where));
}
void non_max_suppression_op(NodeCall& c) {
  NonMaxSuppressionOptions options;
  if (c.has(2)) options.max_output_boxes_per_class = c.integer(2);
  if (c.has(3)) options.iou_threshold = c.number(3);
  if (c.has(4)) options.score_threshold = c.number(4);
  options.center_point_box = c.attr("center_point_box", std::int64_t{0}) != 0;
  c.give(non_max_suppression(c.in(0), c.in(1), options, c.where));
}
void deform_conv_op(NodeCall& c) {
  const Tensor x = c.in(0), weight = c.in(1);
  if (weight.rank() < 3) c.fail("weights must have spatial axes");
  const Shape kernel = sizes_from(weight, 2);
  const WindowSizes w = window_sizes(c, x.shape(), Integers(kernel.begin(), kernel.end()), false);
  DeformConvOptions options;
  options.stride = w.strides, options.padding = w.before, options.padding_end = w.after, options.dilation = w.dilations;
  options.groups = c.attr("group", std::int64_t{1});
  c.give(deform_conv(x, weight, c.in(2), c.optional(3), c.optional(4), options, c.where));
}

/// Elements at the places, counted over all of the result, that a MaxPool took them from.
void max_unpool_op(NodeCall& c) {
  const Tensor x = c.in(0), places = c.in(1);
  const Integers kernel = c.attr_integers("kernel_shape");
  const std::size_t axes = kernel.size();
  const Integers strides = c.attr_integers("strides", Integers(axes, 1)),
                 pads = c.attr_integers("pads", Integers(2 * axes, 0));
  if (axes == 0 || x.rank() != axes + 2 || strides.size() != axes || pads.size() != 2 * axes)
    c.fail("the kernel does not match the input");
  // Places are those of the size that the attributes give; what another one has more lies at the end.
  Shape sizes{x.size(0), x.size(1)};
  for (std::size_t i = 0; i < axes; ++i) {
    check_number(c, strides[i], 1), check_number(c, kernel[i], 1);
    check_number(c, pads[i], 0), check_number(c, pads[axes + i], 0);
    if (x.size(static_cast<std::int64_t>(i) + 2) > (1 << 20)) c.refuse("dimensions above 2^20 are not supported");
    sizes.push_back((x.size(static_cast<std::int64_t>(i) + 2) - 1) * strides[i] + kernel[i] - pads[i] - pads[axes + i]);
    check_number(c, sizes.back(), 0);
  }
  std::int64_t total = 1;
  for (const std::int64_t s : sizes) {
    if (s != 0 && total > (std::int64_t{1} << 40) / s) c.fail("the output is too large");
    total *= s;
  }
  const Tensor flat = scatter(zeros({total}, x.dtype()), flatten(places, c.where), flatten(x, c.where), 0, c.where);
  const Tensor y = reshape(flat, sizes, c.where);
  if (!c.has(2)) return c.give(y);
  const Integers wanted = c.integers(2);
  if (wanted.size() != sizes.rank()) c.fail("the number of sizes differs from the number of axes");
  Integers around;
  for (std::size_t i = wanted.size(); i-- > 0;) around.push_back(0), around.push_back(wanted[i] - sizes[i]);
  c.give(pad(y, around, PadMode::constant, 0, c.where));
}

/// The largest element of each bin of each region; bins are of whole elements.
void max_roi_pool_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const Integers pooled = c.attr_integers("pooled_shape");
  const double scale = c.attr("spatial_scale", 1.0);
  const std::vector<double> rois = c.numbers(1);
  const auto is_wrong = [](std::int64_t n) { return n < 1 || n > 1024; };
  if (pooled.size() != 2 || std::ranges::any_of(pooled, is_wrong) || x.rank() != 4 || rois.size() % 5 != 0)
    c.fail("input must have rank 4, rois five columns, and pooled_shape two values");
  std::vector<Tensor> regions;
  for (std::size_t r = 0; r < rois.size(); r += 5) {
    const Tensor image = select(x, 0, static_cast<std::int64_t>(rois[r]), c.where);
    std::vector<Tensor> rows;
    const auto range = [&](std::size_t from, std::int64_t bins, std::int64_t bin, std::int64_t size) {
      const auto begin = static_cast<std::int64_t>(std::round(rois[r + from] * scale));
      const auto end = static_cast<std::int64_t>(std::round(rois[r + from + 2] * scale));
      const double each = static_cast<double>(std::max<std::int64_t>(end - begin + 1, 1)) / static_cast<double>(bins);
      const auto low = begin + static_cast<std::int64_t>(std::floor(static_cast<double>(bin) * each));
      const auto high = begin + static_cast<std::int64_t>(std::ceil(static_cast<double>(bin + 1) * each));
      return std::pair(std::clamp<std::int64_t>(low, 0, size), std::clamp<std::int64_t>(high, 0, size));
    };
    for (std::int64_t i = 0; i < pooled[0]; ++i) {
      std::vector<Tensor> row;
      for (std::int64_t j = 0; j < pooled[1]; ++j) {
        const auto [top, bottom] = range(2, pooled[0], i, x.size(2));
        const auto [begin, end] = range(1, pooled[1], j, x.size(3));
        if (top >= bottom || begin >= end) {
          row.push_back(zeros({x.size(1)}, x.dtype()));
          continue;
        }
        const Tensor bin = slice(slice(image, 1, top, bottom, 1, c.where), 2, begin, end, 1, c.where);
        row.push_back(max(bin, {1, 2}, false, c.where));
      }
      rows.push_back(stack(row, -1, c.where));
    }
    regions.push_back(stack(rows, 1, c.where));
  }
  if (regions.empty()) return c.give(zeros({0, x.size(1), pooled[0], pooled[1]}, x.dtype()));
  c.give(stack(regions, 0, c.where));
}

constexpr std::array kRows{
    OperatorRow{"AffineGrid", &affine_grid_op, {}, 0b10},
    OperatorRow{"DeformConv", &deform_conv_op},
    OperatorRow{"GridSample", &grid_sample_op},
    OperatorRow{"MaxRoiPool", &max_roi_pool_op, "reads the regions"},
    OperatorRow{"MaxUnpool", &max_unpool_op, {}, 0b100},
    OperatorRow{"NonMaxSuppression", &non_max_suppression_op, "reads how many boxes are left", 0b11100},
    OperatorRow{"Resize", &resize_op, {}, 0b1110},
    OperatorRow{"RoiAlign", &roi_align_op, "without a sampling ratio it reads the regions"},
    OperatorRow{"Upsample", &upsample_op, {}, 0b10},
};

}  // namespace

Rows image_rows() { return kRows; }

}  // namespace fermata::onnx

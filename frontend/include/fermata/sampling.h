// Sampling images at grids, regions and offsets given by tensors; non-maximum suppression.
//
// Names and defaults follow torch.nn.functional and torchvision.ops. All but non-maximum suppression are
// differentiable, also with respect to positions. DType: floating; f16 and bf16 are computed in f32. Errors: ShapeError
// FM1077 if operands do not match, ValueError FM1377 for parameters out of range.
#pragma once

#include <optional>
#include <vector>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

enum class Sampling : std::uint8_t { nearest, linear, cubic };
enum class SamplePadding : std::uint8_t {
  zeros,
  border,      // the border elements repeat
  reflection,  // mirrored at the borders
};
struct GridSampleOptions {
  Sampling mode = Sampling::linear;
  SamplePadding padding = SamplePadding::zeros;
  bool align_corners = false;  // -1 and 1 are the centers of the border elements, not their outer edges
};
/// Samples x at the positions in `grid`: coordinates from -1 to 1, the last axis of x first.
///
/// Shapes   x [N, C, ..S], grid [N, ..P, axes of S] -> [N, C, ..P].
/// Source   PyTorch, torch.nn.functional.grid_sample; ONNX, GridSample-22.
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {},
                   Location where = Location::current());
/// Returns the grid of an affine map of coordinates, for images [N, C, ..S].
///
/// Shapes   theta [N, A, A + 1], size N, C and A sizes -> [N, ..S, A]. DType that of theta.
/// Source   PyTorch, torch.nn.functional.affine_grid.
Tensor affine_grid(const Tensor& theta, const IntegerList& size, bool align_corners = false,
                   Location where = Location::current());

enum class RegionPooling : std::uint8_t { average, max };
struct RoiAlignOptions {
  std::vector<std::int64_t> output_size = {1};
  double spatial_scale = 1;
  std::int64_t sampling_ratio = 0;  // samples per axis of a bin; 0: the size of the bin, rounded up
  bool aligned = false;             // shifts coordinates by half a pixel, to pixel centers
  RegionPooling mode = RegionPooling::average;
};
/// Resamples regions of images to a common size. A sampling ratio of 0 reads the sizes of the regions, which syncs.
///
/// Shapes   x [N, C, H, W], boxes [R, 4] as x1, y1, x2, y2; batch_indices [R], integers -> [R, C, ..output_size].
/// Source   He et al., "Mask R-CNN", ICCV 2017; torchvision.ops.roi_align; ONNX, RoiAlign-22.
Tensor roi_align(const Tensor& x, const Tensor& boxes, const Tensor& batch_indices, const RoiAlignOptions& options = {},
                 Location where = Location::current());

struct DeformConvOptions {
  std::vector<std::int64_t> stride = {1}, padding = {0}, dilation = {1};  // one number, or one per axis
  std::vector<std::int64_t> padding_end = {};                             // after the last element; default `padding`
  std::int64_t groups = 1;
};
/// Deformable convolution: each tap is shifted by its offset and weighted by `mask`.
///
/// Shapes   x [N, C, ..S], weight [O, C / groups, ..K], offset [N, D * K * axes, ..P], bias [O] or undefined, mask [N,
///          D * K, ..P] or undefined -> [N, O, ..P]. D, which divides C, is the number of offset groups.
/// Source   Zhu et al., "Deformable ConvNets v2", CVPR 2019; torchvision.ops.deform_conv2d; ONNX, DeformConv-22.
Tensor deform_conv(const Tensor& x, const Tensor& weight, const Tensor& offset, const Tensor& bias = {},
                   const Tensor& mask = {}, const DeformConvOptions& options = {},
                   Location where = Location::current());

/// i64: indices of the kept boxes, best first; no kept box overlaps an earlier one by more than `iou_threshold`. With
/// `size`, returns exactly that many, padded with -1, and reads nothing, so it works inside compile(fn) and vmap.
///
/// Shapes   boxes [n, 4] as x1, y1, x2, y2, scores [n] -> [kept] or [size].
/// Source   torchvision.ops.nms.
Tensor nms(const Tensor& boxes, const Tensor& scores, double iou_threshold, std::optional<std::int64_t> size = {},
           Location where = Location::current());
struct NonMaxSuppressionOptions {
  std::int64_t max_output_boxes_per_class = 0;
  double iou_threshold = 0;
  std::optional<double> score_threshold = {};
  bool center_point_box = false;  // boxes are [center x, center y, width, height]; else [y1, x1, y2, x2]
};
/// nms() per class and image.
///
/// Shapes   boxes [N, n, 4], scores [N, classes, n] -> [kept, 3], i64: image, class and box.
/// Source   ONNX, NonMaxSuppression-11.
Tensor non_max_suppression(const Tensor& boxes, const Tensor& scores, const NonMaxSuppressionOptions& options = {},
                           Location where = Location::current());

}  // namespace fermata

// Padding, resizing, and pixel shuffles.
//
// Names and defaults follow torch.nn.functional, and ONNX for what that lacks. Errors: ShapeError and ValueError for
// sizes that do not match.
#pragma once

#include <optional>
#include <vector>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

enum class PadMode : std::uint8_t {
  constant,   // `value`
  reflect,    // mirrored about the first and last element, which are not repeated
  replicate,  // repeats the first and last element
  circular,   // wraps around to the other end of the axis
};
/// Pads x. `pads` has the counts before and after for the last axis, then for the second-last, and so on. Negative
/// counts crop; circular padding repeats what is left after cropping.
///
/// Errors   ValueError for an odd number of counts or for more axes than x has; ShapeError if reflect or circular
///          padding exceeds x, or replicate has no element to repeat.
/// Source   PyTorch, torch.nn.functional.pad.
Tensor pad(const Tensor& x, const IntegerList& pads, PadMode mode = PadMode::constant, Scalar value = 0,
           Location where = Location::current());

enum class ResizeMode : std::uint8_t {
  nearest,
  linear,
  cubic,  // Keys' kernel
};
/// The coordinate of result element i along an axis of x. step is size / new size, or 1 / scale.
enum class ResizeCoordinates : std::uint8_t {
  half_pixel,                 // (i + 1/2) step - 1/2: elements are areas, and their outer edges align
  half_pixel_symmetric,       // the same about the center, if size * scale is not an integer
  pytorch_half_pixel,         // half_pixel, but a single result element is at -1/2
  align_corners,              // i (size - 1) / (new size - 1): the first and last elements align
  asymmetric,                 // i step
  tf_half_pixel_for_nearest,  // (i + 1/2) step
  tf_crop_and_resize,         // from the begin of `roi` to its end, relative to size - 1
};
/// Rounding of coordinates for ResizeMode::nearest.
enum class NearestRule : std::uint8_t { round_prefer_floor, round_prefer_ceil, floor, ceil };
/// Whether each axis is resized to its given size, or all axes by the same factor to at most or at least the given
/// sizes.
enum class AspectRatio : std::uint8_t { stretch, not_larger, not_smaller };
struct ResizeOptions {
  std::vector<std::int64_t> size = {};  // of the result, one per element of `axes`; or
  std::vector<double> scale = {};       // the scale factors
  std::vector<std::int64_t> axes = {};  // by default all
  ResizeMode mode = ResizeMode::nearest;
  ResizeCoordinates coordinates = ResizeCoordinates::half_pixel;
  NearestRule nearest = NearestRule::round_prefer_floor;
  double cubic_coefficient = -0.75;  // Keys' a
  bool antialias = false;            // linear and cubic: widens the kernel to the step when downsampling
  bool exclude_outside = false;      // cubic and antialias: elements outside x have weight 0; else the border repeats
  AspectRatio aspect_ratio = AspectRatio::stretch;
  std::vector<double> roi = {};    // tf_crop_and_resize: begins along `axes`, then ends
  double extrapolation_value = 0;  // tf_crop_and_resize: the value outside x
};
/// Resizes x along any of its axes. interpolate() and ONNX's Resize and Upsample are special cases.
///
/// DType    floating; f16 and bf16 are computed in f32. nearest takes any dtype.
/// Errors   ValueError FM1374 for options that do not match the axes, ShapeError FM1077 for a result without elements.
/// Source   ONNX, Resize-19.
Tensor resize(const Tensor& x, const ResizeOptions& options, Location where = Location::current());

enum class Interpolation : std::uint8_t { nearest, nearest_exact, linear, bicubic, area };
struct InterpolateOptions {
  std::vector<std::int64_t> size = {};    // of the result, one per spatial axis or one for all; or
  std::vector<double> scale_factor = {};  // the scale factors
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  // linear and bicubic: the corner elements align
  bool antialias = false;      // linear and bicubic: as in Pillow, when downsampling
};
/// Resizes x [N, C, ..]. `linear` is PyTorch's linear, bilinear or trilinear, depending on the number of axes.
///
/// DType    floating; f16 and bf16 are computed in f32. nearest takes any dtype.
/// Source   PyTorch, torch.nn.functional.interpolate; bicubic is Keys' kernel with a = -0.75, as there.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options, Location where = Location::current());

/// Rearranges [.., C * r * r, H, W] to [.., C, H * r, W * r], and back.
///
/// Source   Shi et al., "Real-time single image and video super-resolution", CVPR 2016.
Tensor pixel_shuffle(const Tensor& x, std::int64_t factor, Location where = Location::current());
Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor, Location where = Location::current());
/// Permutes the channels of [N, C, ..] or [C, ..]: channel c of group g becomes channel g of group c.
///
/// Source   Zhang et al., "ShuffleNet", CVPR 2018.
Tensor channel_shuffle(const Tensor& x, std::int64_t groups, Location where = Location::current());

}  // namespace fermata

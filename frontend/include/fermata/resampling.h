// Other sizes: padding, resizing, and exchanging channels for resolution.
//
// Names and defaults follow torch.nn.functional, and ONNX where it has more. Errors: ShapeError and ValueError where
// sizes do not fit.
#pragma once

#include <optional>
#include <vector>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

enum class PadMode : std::uint8_t {
  constant,   // `value`
  reflect,    // mirrored at the first and last element, which are not repeated
  replicate,  // the first and last element again
  circular,   // the other end of the axis
};
/// x with elements added around it: `pads` has how many come before and after for the last axis, then for the one
/// before it, and so on. Negative numbers take elements away; circular ones repeat what they leave.
///
/// Errors   ValueError for an odd count of numbers or for more axes than x has; ShapeError where reflect and circular
///          reach beyond x, or where replicate has nothing to repeat.
/// Source   PyTorch, torch.nn.functional.pad.
Tensor pad(const Tensor& x, const IntegerList& pads, PadMode mode = PadMode::constant, Scalar value = 0,
           Location where = Location::current());

enum class ResizeMode : std::uint8_t {
  nearest,
  linear,
  cubic,  // Keys' kernel
};
/// Where element i of the result lies along an axis of x. A step is size / new size, or 1 / scale.
enum class ResizeCoordinates : std::uint8_t {
  half_pixel,                 // (i + 1/2) step - 1/2: elements are areas, and the ends of both lie on each other
  half_pixel_symmetric,       // the same about the center, where size * scale is not whole
  pytorch_half_pixel,         // half_pixel, but a single element lies at -1/2
  align_corners,              // i (size - 1) / (new size - 1): the first and last elements lie on each other
  asymmetric,                 // i step
  tf_half_pixel_for_nearest,  // (i + 1/2) step
  tf_crop_and_resize,         // from `roi` begin to its end, in parts of size - 1
};
/// Which element is nearest to a place between two.
enum class NearestRule : std::uint8_t { round_prefer_floor, round_prefer_ceil, floor, ceil };
/// Whether sizes are kept as they are, or all axes scaled alike within them or to at least them.
enum class AspectRatio : std::uint8_t { stretch, not_larger, not_smaller };
struct ResizeOptions {
  std::vector<std::int64_t> size = {};  // of the result, for each of `axes`; or
  std::vector<double> scale = {};       // how many times larger
  std::vector<std::int64_t> axes = {};  // all, where there are none
  ResizeMode mode = ResizeMode::nearest;
  ResizeCoordinates coordinates = ResizeCoordinates::half_pixel;
  NearestRule nearest = NearestRule::round_prefer_floor;
  double cubic_coefficient = -0.75;  // Keys' a
  bool antialias = false;            // linear and cubic: kernels as wide as the step, where that is above 1
  bool exclude_outside = false;      // cubic and antialias: elements outside weigh nothing; else the ends go on
  AspectRatio aspect_ratio = AspectRatio::stretch;
  std::vector<double> roi = {};    // tf_crop_and_resize: where it begins along each of `axes`, then where it ends
  double extrapolation_value = 0;  // tf_crop_and_resize: what is outside of x
};
/// x at another resolution along any of its axes. interpolate() and ONNX's Resize and Upsample are cases of this.
///
/// DType    floating; f16 and bf16 are computed in f32. nearest takes any dtype.
/// Errors   ValueError FM1374 for options that do not fit the axes, ShapeError FM1077 for a result without elements.
/// Source   ONNX, Resize-19.
Tensor resize(const Tensor& x, const ResizeOptions& options, Location where = Location::current());

enum class Interpolation : std::uint8_t { nearest, nearest_exact, linear, bicubic, area };
struct InterpolateOptions {
  std::vector<std::int64_t> size = {};    // of the result, for each spatial axis or one for all; or
  std::vector<double> scale_factor = {};  // how many times larger
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  // linear and bicubic: the corners of both lie on each other
  bool antialias = false;      // linear and bicubic: as Pillow does, where the result is smaller
};
/// x [N, C, ..] at another resolution. `linear` is what PyTorch calls linear, bilinear or trilinear by the number of
/// axes.
///
/// DType    floating; f16 and bf16 are computed in f32. nearest takes any dtype.
/// Source   PyTorch, torch.nn.functional.interpolate; bicubic is Keys' kernel with a = -0.75, as there.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options, Location where = Location::current());

/// [.., C * r * r, H, W] as [.., C, H * r, W * r], and back.
///
/// Source   Shi et al., "Real-time single image and video super-resolution", CVPR 2016.
Tensor pixel_shuffle(const Tensor& x, std::int64_t factor, Location where = Location::current());
Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor, Location where = Location::current());
/// The channels of [N, C, ..] or [C, ..] dealt out to groups in turn: channel c of group g becomes channel g of group
/// c.
///
/// Source   Zhang et al., "ShuffleNet", CVPR 2018.
Tensor channel_shuffle(const Tensor& x, std::int64_t groups, Location where = Location::current());

}  // namespace fermata

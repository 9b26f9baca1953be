// Other sizes: padding, interpolation, and exchanging channels for resolution.
//
// Names and defaults follow torch.nn.functional. Errors: ShapeError and ValueError where sizes do not fit.
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

enum class Interpolation : std::uint8_t { nearest, nearest_exact, linear, bicubic, area };
struct InterpolateOptions {
  std::vector<std::int64_t> size = {};    // of the result, for each spatial axis or one for all; or
  std::vector<double> scale_factor = {};  // how many times larger
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  // linear and bicubic: the corners of both lie on each other
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

}  // namespace fermata

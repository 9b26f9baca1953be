// Windows of convolutions and pools as ONNX describes them: pads on both sides, or to be found.
#pragma once

#include <vector>

#include "frontend/onnx/node_call.h"

namespace fermata::onnx {

struct WindowSizes {
  std::vector<std::int64_t> kernel, strides, dilations, before, after;
  std::vector<std::int64_t> places;  // how many windows there are along each axis
  std::size_t axes() const { return kernel.size(); }
  bool is_symmetric() const { return before == after; }
};
/// Of a node whose operand has the spatial sizes given. With ceil_mode the last window may reach beyond the pads:
/// `after` has what it takes then.
WindowSizes window_sizes(const NodeCall& c, const Shape& x, std::vector<std::int64_t> kernel, bool ceil_mode);

/// x with so many zeros, or another number, around its last axes.
Tensor padded(const NodeCall& c, const Tensor& x, const WindowSizes& w, Scalar value = 0);
/// A view of all windows: [N, C, places.., kernel..].
Tensor windows_of(const NodeCall& c, const Tensor& x, const WindowSizes& w);

/// Convolution of one to three spatial axes.
Tensor convolved(const NodeCall& c, const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace fermata::onnx

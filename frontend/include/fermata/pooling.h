// Sliding windows: unfold and fold, and pooling.
//
// Names, arguments and defaults follow torch.nn.functional. Pooling is a reduction over a view of windows, so it fuses
// with the calls before and after it. Errors: ShapeError if a window does not fit, ValueError for sizes, strides and
// dilations below 1, or padding of more than half a window.
#pragma once

#include <optional>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// A view of all windows of `size` elements along an axis, `step` apart, with elements `dilation` apart. The axis
/// indexes windows, and a new last axis the elements of a window. A view with overlapping windows is read-only.
///
/// Source   PyTorch, torch.Tensor.unfold.
Tensor unfold(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t step, std::int64_t dilation = 1,
              Location where = Location::current());
/// The transpose of unfold(): sums windows into an axis of `length` elements.
///
/// Errors   ShapeError unless unfold() of such an axis gives that many windows.
Tensor fold(const Tensor& windows, std::int64_t axis, std::int64_t length, std::int64_t step, std::int64_t dilation = 1,
            Location where = Location::current());
/// Windows of images [N, C, H, W] as columns [N, C * kernel, positions], and the sum of columns as images; PyTorch's
/// torch.nn.functional.unfold and fold.
Tensor im2col(const Tensor& x, const IntegerList& kernel_size, const IntegerList& dilation = 1,
              const IntegerList& padding = 0, const IntegerList& stride = 1, Location where = Location::current());
Tensor col2im(const Tensor& columns, const IntegerList& output_size, const IntegerList& kernel_size,
              const IntegerList& dilation = 1, const IntegerList& padding = 0, const IntegerList& stride = 1,
              Location where = Location::current());

// The largest element of every window; NaN if it contains one. Equal maxima share the gradient.
//
// Shapes   x [N, C, ..] or [C, ..]. stride defaults to kernel_size. ceil_mode: windows may extend beyond the end.
// DType    real; unchanged.
Tensor max_pool1d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride = {},
                  const IntegerList& padding = 0, const IntegerList& dilation = 1, bool ceil_mode = false,
                  Location where = Location::current());
Tensor max_pool2d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride = {},
                  const IntegerList& padding = 0, const IntegerList& dilation = 1, bool ceil_mode = false,
                  Location where = Location::current());
Tensor max_pool3d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride = {},
                  const IntegerList& padding = 0, const IntegerList& dilation = 1, bool ceil_mode = false,
                  Location where = Location::current());
struct PooledWithIndices {
  Tensor values, indices;  // indices: i64, row-major positions among the spatial axes of x
};
PooledWithIndices max_pool1d_with_indices(const Tensor& x, const IntegerList& kernel_size,
                                          const IntegerList& stride = {}, const IntegerList& padding = 0,
                                          const IntegerList& dilation = 1, bool ceil_mode = false,
                                          Location where = Location::current());
PooledWithIndices max_pool2d_with_indices(const Tensor& x, const IntegerList& kernel_size,
                                          const IntegerList& stride = {}, const IntegerList& padding = 0,
                                          const IntegerList& dilation = 1, bool ceil_mode = false,
                                          Location where = Location::current());
PooledWithIndices max_pool3d_with_indices(const Tensor& x, const IntegerList& kernel_size,
                                          const IntegerList& stride = {}, const IntegerList& padding = 0,
                                          const IntegerList& dilation = 1, bool ceil_mode = false,
                                          Location where = Location::current());

// Inverse of max pooling: puts each value at its index and zeros elsewhere. `output_size` has the spatial sizes; by
// default they are the extent of the windows. If indices repeat, the last element wins.
//
// Shapes   x and indices [N, C, ..] or [C, ..]. Errors: IndexError FM1204 for an index out of range.
// Source   PyTorch, torch.nn.functional.max_unpool2d.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const IntegerList& kernel_size,
                    const IntegerList& stride = {}, const IntegerList& padding = 0, const IntegerList& output_size = {},
                    Location where = Location::current());
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const IntegerList& kernel_size,
                    const IntegerList& stride = {}, const IntegerList& padding = 0, const IntegerList& output_size = {},
                    Location where = Location::current());
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const IntegerList& kernel_size,
                    const IntegerList& stride = {}, const IntegerList& padding = 0, const IntegerList& output_size = {},
                    Location where = Location::current());

// The mean of every window. Padding counts as zeros if `count_include_pad`, else not at all; `divisor` replaces the
// count.
//
// DType    floating; f16 and bf16 are computed in f32.
Tensor avg_pool1d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride = {},
                  const IntegerList& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<std::int64_t> divisor = {}, Location where = Location::current());
Tensor avg_pool2d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride = {},
                  const IntegerList& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<std::int64_t> divisor = {}, Location where = Location::current());
Tensor avg_pool3d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& stride = {},
                  const IntegerList& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<std::int64_t> divisor = {}, Location where = Location::current());

// (mean of x^p over the window * window size)^(1 / p).
//
// Source   PyTorch, torch.nn.functional.lp_pool2d.
Tensor lp_pool1d(const Tensor& x, double p, const IntegerList& kernel_size, const IntegerList& stride = {},
                 bool ceil_mode = false, Location where = Location::current());
Tensor lp_pool2d(const Tensor& x, double p, const IntegerList& kernel_size, const IntegerList& stride = {},
                 bool ceil_mode = false, Location where = Location::current());
Tensor lp_pool3d(const Tensor& x, double p, const IntegerList& kernel_size, const IntegerList& stride = {},
                 bool ceil_mode = false, Location where = Location::current());

// Pooling to a given output size: window i is [floor(i L / O), ceil((i + 1) L / O)). Functions without a rank in their
// name pool the last `output_size.size()` axes.
Tensor adaptive_avg_pool(const Tensor& x, const IntegerList& output_size, Location where = Location::current());
Tensor adaptive_max_pool(const Tensor& x, const IntegerList& output_size, Location where = Location::current());
Tensor adaptive_avg_pool1d(const Tensor& x, const IntegerList& output_size, Location where = Location::current());
Tensor adaptive_avg_pool2d(const Tensor& x, const IntegerList& output_size, Location where = Location::current());
Tensor adaptive_avg_pool3d(const Tensor& x, const IntegerList& output_size, Location where = Location::current());
Tensor adaptive_max_pool1d(const Tensor& x, const IntegerList& output_size, Location where = Location::current());
Tensor adaptive_max_pool2d(const Tensor& x, const IntegerList& output_size, Location where = Location::current());
Tensor adaptive_max_pool3d(const Tensor& x, const IntegerList& output_size, Location where = Location::current());
PooledWithIndices adaptive_max_pool1d_with_indices(const Tensor& x, const IntegerList& output_size,
                                                   Location where = Location::current());
PooledWithIndices adaptive_max_pool2d_with_indices(const Tensor& x, const IntegerList& output_size,
                                                   Location where = Location::current());
PooledWithIndices adaptive_max_pool3d_with_indices(const Tensor& x, const IntegerList& output_size,
                                                   Location where = Location::current());

// Max pooling over windows of a fixed size at random positions: each step is one of two consecutive integers.
//
// Shapes   x [N, C, ..] or [C, ..]; samples [N, C, axes], from 0 to 1, are drawn if undefined.
// Errors   ValueError FM1372 for a window or sizes below 1; ShapeError FM1077 if they do not fit x.
// Source   Graham, "Fractional max-pooling", 2014; PyTorch, torch.nn.functional.fractional_max_pool2d.
PooledWithIndices fractional_max_pool2d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& output_size,
                                        const Tensor& samples = {}, Location where = Location::current());
PooledWithIndices fractional_max_pool3d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& output_size,
                                        const Tensor& samples = {}, Location where = Location::current());

}  // namespace fermata

// Windows: sliding views, pools over them, and putting windows together again.
//
// Names, arguments and defaults follow torch.nn.functional. A pool is a reduction over a view of windows, so it fuses
// with what comes before and after it. Errors: ShapeError where a window does not fit, ValueError for sizes, strides
// and dilations below 1, or padding of more than half a window.
#pragma once

#include <optional>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata {

/// A view of all windows of `size` elements along an axis, each `step` after the one before, with elements `dilation`
/// apart: the axis counts windows, and a new last axis the elements of a window. Where windows overlap it cannot be
/// written to.
///
/// Source   PyTorch, torch.Tensor.unfold.
Tensor unfold(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t step, std::int64_t dilation = 1,
              Location where = Location::current());
/// Windows as unfold() makes them added up to an axis of `length` elements: the transpose of unfold().
///
/// Errors   ShapeError unless unfold() of such an axis gives so many windows.
Tensor fold(const Tensor& windows, std::int64_t axis, std::int64_t length, std::int64_t step, std::int64_t dilation = 1,
            Location where = Location::current());
/// Windows of images [N, C, H, W] as columns [N, C * kernel, places], and their sum as images again: what PyTorch calls
/// torch.nn.functional.unfold and fold.
Tensor im2col(const Tensor& x, const IntegerList& kernel_size, const IntegerList& dilation = 1,
              const IntegerList& padding = 0, const IntegerList& stride = 1, Location where = Location::current());
Tensor col2im(const Tensor& columns, const IntegerList& output_size, const IntegerList& kernel_size,
              const IntegerList& dilation = 1, const IntegerList& padding = 0, const IntegerList& stride = 1,
              Location where = Location::current());

// The largest element of every window; NaN if there is one. Where several are largest they share the gradient.
//
// Shapes   x [N, C, ..] or [C, ..]. stride is by default kernel_size. ceil_mode: windows may reach beyond the end.
// DType    real, kept.
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

// What a max pool took, at the places that it took it from, and zeros elsewhere. Without `output_size`, the spatial
// sizes, the result is as large as the windows reach. Where places repeat the last element stays.
//
// Shapes   x and indices [N, C, ..] or [C, ..]. Errors: IndexError FM1204 for a place beyond the result.
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

// The mean of every window. Padding counts as zeros, or not at all; `divisor` replaces the count.
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

// The mean of x^p of every window times the size of a window, to the power of 1 / p.
//
// Source   PyTorch, torch.nn.functional.lp_pool2d.
Tensor lp_pool1d(const Tensor& x, double p, const IntegerList& kernel_size, const IntegerList& stride = {},
                 bool ceil_mode = false, Location where = Location::current());
Tensor lp_pool2d(const Tensor& x, double p, const IntegerList& kernel_size, const IntegerList& stride = {},
                 bool ceil_mode = false, Location where = Location::current());
Tensor lp_pool3d(const Tensor& x, double p, const IntegerList& kernel_size, const IntegerList& stride = {},
                 bool ceil_mode = false, Location where = Location::current());

// Pools of as many windows as the result has elements, window i from floor(i L / O) to ceil((i + 1) L / O). Without a
// number of axes in the name: over as many last axes as there are sizes.
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

// Max pools of windows of one size whose places are random: each step is one of two next to each other.
//
// Shapes   x [N, C, ..] or [C, ..]; samples [N, C, axes], from 0 to 1, are drawn where they are undefined.
// Errors   ValueError FM1372 for a window or sizes below 1; ShapeError FM1077 where they do not fit x.
// Source   Graham, "Fractional max-pooling", 2014; PyTorch, torch.nn.functional.fractional_max_pool2d.
PooledWithIndices fractional_max_pool2d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& output_size,
                                        const Tensor& samples = {}, Location where = Location::current());
PooledWithIndices fractional_max_pool3d(const Tensor& x, const IntegerList& kernel_size, const IntegerList& output_size,
                                        const Tensor& samples = {}, Location where = Location::current());

}  // namespace fermata

// unfold, fold, im2col and col2im; see fermata/pooling.h.
#include <fmt/format.h>

#include <array>

#include "fermata/pooling.h"
#include "fermata/resampling.h"
#include "fermata/views.h"
#include "frontend/engine/alias.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/spatial_arguments.h"
#include "frontend/ops/op_rules.h"
#include "ir/convolution.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {

Tensor unfold(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t step, std::int64_t dilation,
              Location where) {
  require_defined("unfold", x, where);
  const ops::Unfold unfold{.axis = {normalize_axis("unfold", axis, type_of(x), where)},
                           .size = {size},
                           .step = {step},
                           .dilation = {dilation}};
  return make_view(Op::unfold, x, encode(unfold), {}, where);
}

Tensor fold(const Tensor& windows, std::int64_t axis, std::int64_t length, std::int64_t step, std::int64_t dilation,
            Location where) {
  require_defined("fold", windows, where);
  TensorType whole = type_of(windows);
  if (windows.rank() < 2)
    throw ShapeError(1075,
                     format_error(1075, "ShapeError", "fold: windows must have the window elements as the last axis",
                                  describe(windows), where));
  whole.shape = Shape(std::span<const std::int64_t>(windows.shape()).first(windows.rank() - 1u));
  const unsigned at = normalize_axis("fold", axis, whole, where);
  whole.shape[at] = length;
  return general_call<Op::fold>({.axis = {at}, .step = {step}, .dilation = {dilation}, .shape = {whole.shape}},
                                {&windows, 1}, where, whole.dtype);
}

Tensor im2col(const Tensor& given, const IntegerList& kernel_size, const IntegerList& dilation,
              const IntegerList& padding, const IntegerList& stride, Location where) {
  const Images images("im2col", given, 2, where);
  const Shape kernel = by_axis("im2col", "kernel_size", kernel_size, 2, 1, where);
  const Shape apart = by_axis("im2col", "dilation", dilation, 2, 1, where);
  const Shape zeros = by_axis("im2col", "padding", padding, 2, 0, where);
  const Shape step = by_axis("im2col", "stride", stride, 2, 1, where);
  Tensor x = pad(images.x, {zeros[1], zeros[1], zeros[0], zeros[0]}, PadMode::constant, 0, where);
  for (const unsigned i : {0u, 1u}) x = unfold(x, 2 + i, kernel[i], step[i], apart[i], where);
  const Tensor columns = permute(x, {0, 1, 4, 5, 2, 3}, where);
  return images.restore(reshape(columns, {x.size(0), x.size(1) * kernel[0] * kernel[1], x.size(2) * x.size(3)}, where),
                        where);
}

Tensor col2im(const Tensor& given, const IntegerList& output_size, const IntegerList& kernel_size,
              const IntegerList& dilation, const IntegerList& padding, const IntegerList& stride, Location where) {
  const Images images("col2im", given, 1, where);
  const Shape size = by_axis("col2im", "output_size", output_size, 2, 1, where);
  const Shape kernel = by_axis("col2im", "kernel_size", kernel_size, 2, 1, where);
  const Shape apart = by_axis("col2im", "dilation", dilation, 2, 1, where);
  const Shape zeros = by_axis("col2im", "padding", padding, 2, 0, where);
  const Shape step = by_axis("col2im", "stride", stride, 2, 1, where);
  const Tensor& columns = images.x;
  std::int64_t places[2], channels = columns.size(1) / (kernel[0] * kernel[1]);
  for (std::size_t i = 0; i < 2; ++i) places[i] = window_count(size[i] + 2 * zeros[i], kernel[i], step[i], apart[i]);
  if (channels * kernel[0] * kernel[1] != columns.size(1) || places[0] * places[1] != columns.size(2))
    throw ShapeError(1075, format_error(1075, "ShapeError",
                                        fmt::format("col2im: {} x {} windows of {} x {}", places[0], places[1],
                                                    kernel[0], kernel[1]),
                                        describe(given), where));
  Tensor x = reshape(columns, {columns.size(0), channels, kernel[0], kernel[1], places[0], places[1]}, where);
  x = permute(x, {0, 1, 4, 5, 2, 3}, where);
  x = fold(x, 3, size[1] + 2 * zeros[1], step[1], apart[1], where);
  x = fold(x, 2, size[0] + 2 * zeros[0], step[0], apart[0], where);
  return images.restore(pad(x, {-zeros[1], -zeros[1], -zeros[0], -zeros[0]}, PadMode::constant, 0, where), where);
}

// Gradients and batching rules.
namespace vjp {
namespace {

VjpTensor unfold_vjp(const VjpArgs& args, unsigned) {
  const auto unfold = args.attributes_of<ops::Unfold>();
  return call<Op::fold>(
      {.axis = unfold.axis, .step = unfold.step, .dilation = unfold.dilation, .shape = {args.shape(0)}},
      {&args.g.tensor(), 1}, args.g.dtype());
}
VjpTensor fold_vjp(const VjpArgs& args, unsigned) {
  const auto fold = decode<ops::Fold>({.attributes = args.attributes(), .shape = {}, .scalars = {}});
  return call<Op::unfold>(
      {.axis = fold.axis, .size = {args.shape(0).back()}, .step = fold.step, .dilation = fold.dilation},
      {&args.g.tensor(), 1});
}

}  // namespace

FERMATA_OP_RULES(unfold, batched_in_front, gradient(unfold_vjp));
FERMATA_OP_RULES(fold, batched_in_front, gradient(fold_vjp));

}  // namespace vjp

}  // namespace fermata

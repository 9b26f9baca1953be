// Choosing among boxes that overlap: nms() and non_max_suppression() of fermata/sampling.h.
//
// Boxes in the order of their scores; one loop over them, in which each that is still there removes what it overlaps.
#include <fmt/format.h>

#include "fermata/control_flow.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/sampling.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// Edges of boxes [.., 4], each [..].
struct Edges {
  VjpTensor low[2], high[2];
};
Edges edges_of(const Tensor& boxes, bool center_size, Location where) {
  Edges e;
  for (std::int64_t i = 0; i < 2; ++i) {
    const VjpTensor first = select(boxes, -1, i, where), second = select(boxes, -1, i + 2, where);
    e.low[i] = center_size ? first - second / 2 : vjp::minimum(first, second);
    e.high[i] = center_size ? first + second / 2 : vjp::maximum(first, second);
  }
  return e;
}

/// bool [B, n]: which boxes [B, n, 4] stay, in an order of falling scores. Those of `present` only, where it is
/// defined.
Tensor kept(const Tensor& sorted, const Tensor& present, double threshold, bool center_size, Location where) {
  const std::int64_t batch = sorted.size(0), n = sorted.size(1);
  const auto step = [=](const Tensor& stays, const std::tuple<Tensor, Tensor>& one) {
    const vjp::LineGuard line(where);
    const auto& [box, i] = one;
    const Edges a = edges_of(expand_dims(box, 1, where), center_size, where), b = edges_of(sorted, center_size, where);
    VjpTensor common = 1, areas[2] = {1, 1};
    for (int k = 0; k < 2; ++k) {
      common = common * vjp::maximum(vjp::minimum(a.high[k], b.high[k]) - vjp::maximum(a.low[k], b.low[k]), 0);
      areas[0] = areas[0] * (a.high[k] - a.low[k]), areas[1] = areas[1] * (b.high[k] - b.low[k]);
    }
    const VjpTensor overlaps = common > threshold * (areas[0] + areas[1] - common);
    const VjpTensor at = vjp::iota({n}, 0, stays);
    const VjpTensor is_there = any(vjp::logical_and(stays, vjp::equal(at, i)).tensor(), 1, true, where);
    const VjpTensor removed = vjp::logical_and(vjp::logical_and(overlaps, at > i), is_there);
    return std::pair<Tensor, std::tuple<>>(vjp::logical_and(stays, vjp::logical_not(removed)).tensor(), {});
  };
  const Tensor start = present.defined() ? present : full({batch, n}, true, DType::boolean, device(sorted), where);
  if (n == 0 || batch == 0) return start;
  return scan(step, start, std::tuple(transpose(sorted, 0, 1, where), iota({n}, 0, device(sorted), where)), false,
              where)
      .first;
}

}  // namespace

Tensor nms(const Tensor& boxes, const Tensor& scores, double iou_threshold, std::optional<std::int64_t> size,
           Location where) {
  const FloatingScope in("nms", {&boxes, &scores}, where);
  if (boxes.rank() != 2 || boxes.size(1) != 4 || scores.shape() != Shape{boxes.size(0)})
    throw ShapeError(1077, format_error(1077, "ShapeError", "nms: boxes [n, 4] and scores [n] do not fit",
                                        {{"boxes", to_string(boxes.dtype(), boxes.shape()), ""},
                                         {"scores", to_string(scores.dtype(), scores.shape()), ""}},
                                        where));
  if (size && *size < 0) fail_parameter("nms", "the size is negative", where);
  const std::int64_t n = boxes.size(0);
  if (n == 0) return full({size.value_or(0)}, -1, DType::i64, device(boxes), where);
  const Tensor order = argsort(scores.detach(), 0, true, where);
  const Tensor sorted = take(in(boxes).tensor().detach(), order, 0, where);
  const Tensor stays = squeeze(kept(expand_dims(sorted, 0, where), {}, iou_threshold, false, where), 0, where);
  const VjpTensor place = flatnonzero(stays, size, where);
  const VjpTensor box = take(order, vjp::minimum(place, n - 1).tensor(), 0, where);
  return size ? vjp::where(vjp::equal(place, n), -1, box).tensor() : box.tensor();
}

Tensor non_max_suppression(const Tensor& boxes, const Tensor& scores, const NonMaxSuppressionOptions& o,
                           Location where) {
  const FloatingScope in("non_max_suppression", {&boxes, &scores}, where);
  if (boxes.rank() != 3 || boxes.size(2) != 4 || scores.rank() != 3 || scores.size(0) != boxes.size(0) ||
      scores.size(2) != boxes.size(1))
    throw ShapeError(1077, format_error(1077, "ShapeError",
                                        "non_max_suppression: boxes [N, n, 4] and scores [N, classes, n] do not fit",
                                        {{"boxes", to_string(boxes.dtype(), boxes.shape()), ""},
                                         {"scores", to_string(scores.dtype(), scores.shape()), ""}},
                                        where));
  const std::int64_t images = scores.size(0), classes = scores.size(1), n = scores.size(2), rows = images * classes;
  if (rows * n == 0 || o.max_output_boxes_per_class <= 0) return zeros({0, 3}, DType::i64, device(boxes), where);
  const VjpTensor order = reshape(argsort(scores.detach(), 2, true, where), {rows, n}, where);
  // Boxes of image i / classes, in the order of row i.
  const VjpTensor image = vjp::floor_divide(vjp::iota({rows, 1}, 0, order), classes);
  const VjpTensor flat = reshape(in(boxes).tensor().detach(), {images * n, 4}, where);
  const VjpTensor sorted = vjp::take(flat, image * n + order, 0);
  Tensor present;
  if (o.score_threshold) {
    const VjpTensor all = reshape(in(scores).tensor().detach(), {rows * n}, where);
    present = (vjp::take(all, vjp::iota({rows, 1}, 0, order) * n + order, 0) > *o.score_threshold).tensor();
  }
  const VjpTensor stays = kept(sorted.tensor(), present, o.iou_threshold, o.center_point_box, where);
  const VjpTensor counted = cumulative_sum(stays.tensor(), 1, false, where);
  const VjpTensor chosen = vjp::logical_and(stays, counted <= o.max_output_boxes_per_class);
  const VjpTensor place = flatnonzero(chosen.tensor(), {}, where);  // row * n + rank
  const VjpTensor row = vjp::floor_divide(place, n);
  const Tensor box = take(reshape(order.tensor(), {rows * n}, where), place.tensor(), 0, where);
  return stack(std::array{vjp::floor_divide(row, classes).tensor(), vjp::remainder(row, classes).tensor(), box}, 1,
               where);
}

}  // namespace fermata

// Choosing among boxes that overlap: nms() and non_max_suppression() of fermata/sampling.h.
//
// Boxes in the order of their scores; one loop over them, in which each that is still there removes what it overlaps.
// The loop is an operator of its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/library.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/sampling.h"
#include "fermata/views.h"
#include "frontend/engine/startup.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "frontend/ops/run_on_host.h"
#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// The loop over boxes of one row; `stays` says which there are, and then which stay.
template <class T> class Suppression {
 public:
  Suppression(const T* boxes, std::int64_t n, double threshold, bool center_size)
      : n_(n),
        threshold_(static_cast<T>(threshold)),
        stride_(n + kLanes),
        numbers_(static_cast<std::size_t>(5 * stride_)) {
    for (std::int64_t i = 0; i < n; ++i, boxes += 4) {
      T area = 1;
      for (int k = 0; k < 2; ++k) {
        const T first = boxes[k], second = boxes[k + 2];
        // NaN in either edge leaves boxes that overlap nothing.
        const T low = center_size ? first - second / 2 : first < second ? first : second;
        const T high = center_size ? first + second / 2 : first < second ? second : first;
        column(2 * k)[i] = low, column(2 * k + 1)[i] = high;
        area *= high - low;
      }
      column(4)[i] = area;
    }
  }
  void run(bool* stays) {
    for (std::int64_t i = 0; i < n_; ++i)
      if (stays[i]) remove_below(i, stays);
  }

 private:
  T* column(int k) { return numbers_.data() + k * stride_; }

  // As vectors by hand: the compiler leaves loops that it does not know to be long alone.
  static constexpr std::int64_t kLanes = 16 / static_cast<std::int64_t>(sizeof(T));
  using Lanes [[gnu::vector_size(16)]] = T;
  using Mask = decltype(Lanes{} > Lanes{});

  static Lanes load(const T* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
  }
  static Lanes overlap(Lanes low, Lanes high, T own_low, T own_high) {
    const Lanes a = Lanes{} + own_low, b = Lanes{} + own_high;
    const Lanes length = (b < high ? b : high) - (a > low ? a : low);
    return length > Lanes{} ? length : Lanes{};
  }
  void remove_below(std::int64_t i, bool* stays) {
    const T *left = column(0), *right = column(1), *top = column(2), *bottom = column(3), *areas = column(4);
    for (std::int64_t j = i + 1; j < n_; j += kLanes) {  // columns are padded
      const Lanes common = overlap(load(left + j), load(right + j), left[i], right[i]) *
                           overlap(load(top + j), load(bottom + j), top[i], bottom[i]);
      const Mask removed = common > threshold_ * (areas[i] + load(areas + j) - common);
      for (std::int64_t k = 0; k < kLanes && j + k < n_; ++k) stays[j + k] = stays[j + k] & (removed[k] == 0);
    }
  }

  std::int64_t n_;
  T threshold_;
  std::int64_t stride_;
  std::vector<T> numbers_;
};

template <class T> void suppress(const Tensor& boxes, bool* stays, double threshold, bool center_size, Location where) {
  const Elements given(boxes, where);
  const std::int64_t rows = boxes.size(0), n = boxes.size(1);
  const auto* const from = given.data<T>();
  parallel_for(0, rows, 0.5 * static_cast<double>(n) * static_cast<double>(n),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   Suppression<T>(from + row * n * 4, n, threshold, center_size).run(stays + row * n);
               });
}

Tensor nms_kept(const Call& call, const Tensor& boxes, const Tensor& present, double threshold, bool center_size) {
  const Tensor dense = Elements(boxes, call.where).dense() ? boxes : copy(boxes, call.where);
  const Tensor wanted = Elements(present, call.where).dense() ? present : copy(present, call.where);
  const Tensor out = empty(present.shape(), DType::boolean);
  bool* const stays = elements_to_fill<bool>(out, call.where);
  const Elements start(wanted, call.where);
  std::copy_n(start.data<bool>(), start.count(), stays);
  if (dense.dtype() == DType::f64)
    suppress<double>(dense, stays, threshold, center_size, call.where);
  else
    suppress<float>(dense, stays, threshold, center_size, call.where);
  return out;
}

/// Rows of a batch are rows.
std::vector<Tensor> batched_nms_kept(const BatchedArguments& b) {
  std::int64_t size = 1;
  for (std::size_t k = 0; k < 2; ++k)
    if (b.batched[k]) size = b.arguments[k].as<Tensor>().size(0);
  Stack stack;
  Shape kept;
  for (std::size_t k = 0; k < 2; ++k) {
    const Tensor& given = b.arguments[k].as<Tensor>();
    const Tensor x = b.batched[k] ? given : expand_dims(given, 0);
    Shape whole = x.shape();
    whole[0] = size;
    if (k == 1) kept = whole;
    Shape flat{size * whole[1]};
    for (unsigned axis = 2; axis < whole.rank(); ++axis) flat.push_back(whole[axis]);
    stack.emplace_back(reshape(broadcast_to(x, whole), flat));
  }
  stack.push_back(b.arguments[2]), stack.push_back(b.arguments[3]);
  OperatorHandle::find("fermata::nms_kept").call_boxed(stack);
  return {reshape(stack[0].as<Tensor>(), kept)};
}

/// bool [B, n]: which boxes [B, n, 4] stay, in an order of falling scores. Those of `present` only, where it is
/// defined.
Tensor kept(const Tensor& sorted, const Tensor& present, double threshold, bool center_size, Location where) {
  static const auto op =
      OperatorHandle::find("fermata::nms_kept").typed<Tensor(const Tensor&, const Tensor&, double, bool)>();
  const Tensor start =
      present.defined() ? present : full({sorted.size(0), sorted.size(1)}, true, DType::boolean, device(sorted), where);
  if (start.element_count() == 0) return start;
  return op(sorted, start, threshold, center_size, where);
}

}  // namespace

Tensor nms(const Tensor& boxes, const Tensor& scores, double iou_threshold, std::optional<std::int64_t> size,
           Location where) {
  const FloatingScope in("nms", {&boxes, &scores}, where);
  if (boxes.rank() != 2 || boxes.size(1) != 4 || scores.shape() != Shape{boxes.size(0)})
    throw ShapeError(1077, format_error(1077, "ShapeError", "nms: boxes [n, 4] and scores [n] do not match",
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
                                        "non_max_suppression: boxes [N, n, 4] and scores [N, classes, n] do not match",
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

void register_suppression() {
  Library operators(Library::Kind::fragment, "fermata"), cpu(Library::Kind::implementation, "fermata", "CPU"),
      cuda(Library::Kind::implementation, "fermata", "CUDA"), meta(Library::Kind::implementation, "fermata", "Meta"),
      batched(Library::Kind::implementation, "fermata", "Batched");
  operators.def("pure nms_kept(Tensor boxes, Tensor present, float threshold, bool center_size) -> Tensor",
                "Which boxes are kept, in order of descending scores: those that overlap no kept box before them.");
  cpu.impl("nms_kept", &nms_kept);
  cuda.impl_boxed("nms_kept", run_on_host());
  meta.impl("nms_kept", [](const Call&, const Tensor&, const Tensor& present, double, bool) {
    return meta_tensor({DType::boolean, present.shape()});
  });
  batched.impl_boxed("nms_kept", batching_rule(&batched_nms_kept));
  for (Library* m : {&operators, &cpu, &cuda, &meta, &batched}) m->keep();
}

}  // namespace fermata

// See alias.h.
#include "frontend/engine/alias.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "dispatch/call.h"
#include "dispatch/update_in_place.h"
#include "fermata/device.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/engine/no_memory.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/autograd.h"
#include "frontend/transforms/trace/tracer.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/fork.h"
#include "ir/ops/views.h"
#include "ir/view.h"
#include "runtime/buffer_window.h"

namespace fermata {

Tensor handle_of(TensorImpl* impl) {
  impl->refs.fetch_add(1, std::memory_order_relaxed);
  return Tensor(impl);
}

namespace {

/// The first and the last element of its cell that a tensor has; none if it is empty.
std::optional<std::pair<std::int64_t, std::int64_t>> range_in_cell(const Tensor& t) {
  const ViewInfo* const view = t.impl()->view;
  const Shape sizes = view != nullptr ? view->sizes : t.shape();
  if (element_count(sizes) == 0) return std::nullopt;
  if (view == nullptr) return {{0, element_count(sizes) - 1}};
  std::pair<std::int64_t, std::int64_t> range{view->offset, view->offset};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    (view->strides[i] < 0 ? range.first : range.second) += view->strides[i] * (sizes[i] - 1);
  return range;
}

}  // namespace

bool may_share_elements(const Tensor& a, const Tensor& b) {
  if (cell_of(a) != cell_of(b)) return false;
  const auto x = range_in_cell(a), y = range_in_cell(b);
  return x && y && x->first <= y->second && y->first <= x->second;
}

namespace {

/// A kTensor reference more of a node.
Node* shared(Node* node) {
  node->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
  return node;
}

/// A value in a dense buffer of its own, computed now.
Node* dense_value(const Tensor& value, Location where) {
  Node* node = value.node();
  if (node->pending()) tensor_hooks.materialize(node, "an in-place write through a data pointer", where);
  return node;
}

/// Writes where the address was handed out.
void write_pinned(const Tensor& target, const Tensor& value, Location where) {
  const Tensor dense = general_call(Op::copy, {&value, 1}, {}, where);
  const Node* from = dense_value(dense, where);
  separate_pinned(target);
  const std::size_t bytes = static_cast<std::size_t>(element_count(from->sizes())) * byte_size(from->dtype);
  if (bytes != 0) std::memcpy(target.impl()->pinned->data, from->storage.load(std::memory_order_acquire)->data, bytes);
}

/// Inside vmap: `target` gets one value for each element of the batch.
void write_wrapper(const Tensor& target, const Tensor& value, Location where) {
  const Tensor own = at_level(value, batched_tensor(target).level);
  take_history(target, own, where);
  target.set_node(shared(own.node()));
  take_payload(target.impl(), own);
}

void write_cell(const Tensor& target, const Tensor& given, Location where) {
  const Tensor value = placed_like(target, given, where);
  if (depth_of(value) > depth_of(target))
    throw ValueError(
        1745, format_error(1745, "ValueError", "an in-place write of batched values to a tensor that is not batched",
                           {{"x", to_string(target.dtype(), target.shape()), ""},
                            {"values", to_string(value.dtype(), value.shape()), "batched"}},
                           where, "zeros_like() of a batched tensor returns a batched one"));
  if (is_batched(target)) return write_wrapper(target, value, where);
  if (tracing()) [[unlikely]]
    tracer->note_write(target, where);
  take_history(target, value, where);
  if (target.impl()->pinned == nullptr) {
    const Tensor& own = in_capture_scope() ? capture_scope->operand(value, where) : value;
    return target.set_node(shared(own.node()));
  }
  write_pinned(target, value, where);
  if (tracing()) [[unlikely]]
    tracer->same_value(target, value, where);
}

}  // namespace

void separate_pinned(const Tensor& target) {
  Node* const old = target.impl()->value;
  Storage* const pinned = target.impl()->pinned;
  Storage* const window = old->storage.load(std::memory_order_acquire);
  const auto leaf_over = [&](StoragePtr buffer) {
    return make_leaf(old->type(), buffer.release(), old->backend, Node::kTensor);
  };
  Node* fresh = nullptr;
  // Besides the value itself: calls that have recorded it, and views and arguments with the same window.
  if (old->refs.load(std::memory_order_acquire) == Node::kTensor && window->unique()) {
    window->retain();
    fresh = leaf_over(StoragePtr(window));
  } else {
    const std::size_t bytes = static_cast<std::size_t>(element_count(old->sizes())) * byte_size(old->dtype);
    StoragePtr kept(Storage::allocate(bytes));
    if (bytes != 0) std::memcpy(kept->data, pinned->data, bytes);
    pinned->retain();
    fresh = leaf_over(window_on(StoragePtr(pinned)));
    move_window(*window, std::move(kept));
  }
  target.set_node(fresh);  // a new version: views are derived again
}

namespace {

/// The value of a view, which has no history of its own: what it has follows from that of its base. Histories below a
/// wrapper are another matter.
Tensor value_of_view(Op op, const Tensor& x, const Attributes& arguments, Location where) {
  if (is_batched(x)) {
    const Tensor plain = without_history(x);
    return general_call(op, {&plain, 1}, arguments, where);
  }
  const KeyGuard no_history({}, Functionality::autograd);
  Attributes inferred = arguments;
  inferred.is_inferred = true;
  return general_call(op, {&x, 1}, inferred, where);
}

ViewStep slice_step(const std::vector<std::int64_t>& start, const std::vector<std::int64_t>& step, const Shape& sizes) {
  const auto integers = encode(ops::Slice{.start = {start}, .step = {step}, .counts = {}});
  return {Op::slice, {integers.begin(), integers.end()}, sizes};
}

/// A slice of a slice, as one.
void merge_slices(ViewStep& first, const ViewStep& second) {
  const auto of = [](const ViewStep& s) { return decode<ops::Slice>({s.attributes, s.sizes, {}, {}}); };
  const ops::Slice a = of(first), b = of(second);
  std::vector<std::int64_t> start, step;
  for (std::size_t i = 0; i < second.sizes.size(); ++i) {
    start.push_back(second.sizes[i] == 0 ? 0 : a.start.value[i] + b.start.value[i] * a.step.value[i]);
    step.push_back(second.sizes[i] <= 1 ? 1 : a.step.value[i] * b.step.value[i]);
  }
  first = slice_step(start, step, second.sizes);
}

/// Steps of one kind become one, and a slice goes before a permute: a chain of any length of them is two steps.
void add_step(ViewSteps& steps, ViewStep next) {
  const bool follows_permute = !steps.empty() && steps.back().op == Op::permute;
  if (follows_permute && next.op == Op::slice) {
    ViewStep permute = std::move(steps.back());
    steps.pop_back();
    const auto axes = decode<ops::Permute>({permute.attributes, permute.sizes, {}, {}}).axes.value;
    const auto permuted = decode<ops::Slice>({next.attributes, next.sizes, {}, {}});
    std::vector<std::int64_t> start(next.sizes.size()), step(next.sizes.size());
    Shape sizes = next.sizes;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto from = static_cast<std::size_t>(axes[i]);
      start[from] = permuted.start.value[i], step[from] = permuted.step.value[i], sizes[from] = next.sizes[i];
    }
    permute.sizes = next.sizes;
    add_step(steps, slice_step(start, step, sizes));
    steps.push_back(std::move(permute));
  } else if (follows_permute && next.op == Op::permute) {
    for (std::int64_t& axis : next.attributes) axis = steps.back().attributes[static_cast<std::size_t>(axis)];
    steps.back() = std::move(next);
  } else if (!steps.empty() && steps.back().op == Op::slice && next.op == Op::slice) {
    merge_slices(steps.back(), next);
  } else {
    steps.push_back(std::move(next));
  }
}

}  // namespace

Tensor make_view(Op op, const Tensor& x, std::span<const std::int64_t> attributes, const Shape& wanted,
                 Location where) try {
  const TensorType operand = type_of(x), type = infer(op, {&operand, 1}, attributes, {operand.dtype, wanted}, where);
  const Attributes arguments{.wanted = type, .integers = attributes, .scalars = {}};
  // A tensor of parts is never written, so there is nothing to alias; its parts have views and histories of their own.
  if (is_composite_tensor(x)) return general_call(op, {&x, 1}, arguments, where);
  const ViewInfo* outer = x.impl()->view;
  auto view = std::make_unique<ViewInfo>();
  view->base = outer != nullptr ? outer->base : x.impl();
  if (outer != nullptr) view->steps = outer->steps, view->offset = outer->offset;
  view->sizes = operand.shape;
  view->strides = outer != nullptr ? outer->strides : dense_strides(operand.shape);
  if (!apply_view(op, attributes, type.shape, view->sizes, view->strides, view->offset))
    return general_call(op, {&x, 1}, arguments, where);
  add_step(view->steps, {op, {attributes.begin(), attributes.end()}, type.shape});
  Tensor result = value_of_view(op, x, arguments, where);
  view->seen_version = view->base->version;
  view->base->refs.fetch_add(1, std::memory_order_relaxed);
  result.impl()->view = view.release();
  return result;
} catch (const std::bad_alloc&) { throw_no_memory(name(op), where); }

Node* derive_view(TensorImpl* impl) {
  ViewInfo& view = *impl->view;
  Tensor value = handle_of(view.base);
  for (const ViewStep& step : view.steps) {
    const Attributes arguments{.wanted = {value.dtype(), step.sizes}, .integers = step.attributes, .scalars = {}};
    value = value_of_view(step.op, value, arguments, {});
  }
  // Of all views: it is held for a few instructions, after a write in place only.
  static auto& publishing = *new ForkSafeMutex;
  Node* old = nullptr;
  {
    const std::lock_guard lock(publishing);
    if (view.seen_version.load(std::memory_order_relaxed) == view.base->version) return impl->value;
    old = std::exchange(impl->value, shared(value.node()));
    if (is_batched(value)) take_payload(impl, value);
    view.seen_version.store(view.base->version, std::memory_order_release);
  }
  if (old != nullptr && drop_references(old->refs, Node::kTensor)) destroy_node(old);
  return impl->value;
}

namespace {

/// A write keeps a tensor where it is.
void check_device(const Tensor& target, const Tensor& value, Location where) {
  const Device own = device(target), given = device(value);
  if (own == given) [[likely]]
    return;
  const auto text = [&](Device d) {
    const std::string backend(kBackendNames[static_cast<std::size_t>(d.backend())]);
    return own.backend() == given.backend() ? backend + ":" + std::to_string(d.index()) : backend;
  };
  throw DeviceError(1401,
                    format_error(1401, "DeviceError",
                                 "an in-place write: the tensor is on " + text(own) + ", the value on " + text(given),
                                 {{"x", to_string(target.dtype(), target.shape()), "on " + text(own)},
                                  {"value", to_string(value.dtype(), value.shape()), "on " + text(given)}},
                                 where, "move the value with to()"));
}

/// The value of a view is about to be that of the past: without it the base may be written where it lies. It is derived
/// again when it is next read. Another thread that reads the view now would race with the write itself.
void forget_value(TensorImpl* view) {
  if (view->payload != nullptr || view->value == nullptr) return;
  Node* const old = std::exchange(view->value, nullptr);
  view->view->seen_version.store(~std::uint64_t{0}, std::memory_order_relaxed);
  if (drop_references(old->refs, Node::kTensor)) destroy_node(old);
}

/// May two elements of a view be one element of its base? From the smallest stride up, each axis has to step over all
/// that the axes before it reach; overlapping windows do not, and neither do stretched axes.
bool shares_elements(const ViewInfo& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, size
  for (std::size_t i = 0; i < view.sizes.size(); ++i)
    if (view.sizes[i] > 1) axes.emplace_back(std::abs(view.strides[i]), view.sizes[i]);
  std::sort(axes.begin(), axes.end());
  std::int64_t reached = 0;  // the last offset
  for (const auto& [stride, size] : axes) {
    if (stride <= reached) return true;
    reached += stride * (size - 1);
  }
  return false;
}

}  // namespace

void write(const Tensor& target, const Tensor& value, Location where) {
  check_device(target, value, where);
  const ViewInfo* view = target.impl()->view;
  if (view == nullptr) return write_cell(target, value, where);
  if (shares_elements(*view))
    throw ValueError(1308, format_error(1308, "ValueError", "an in-place write to a view whose elements share memory",
                                        describe(target), where, "copy() returns a writable tensor"));
  const Tensor base = handle_of(view->base);
  forget_value(target.impl());
  if (!tracing() && update_in_place(base, value, view->offset, view->strides, where))
    return base.set_node(shared(base.node()));
  const Tensor operands[] = {base, value};
  write_cell(base, general_call<Op::update>({.offset = {view->offset}, .strides = {view->strides}}, operands, where),
             where);
}

}  // namespace fermata

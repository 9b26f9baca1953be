// See batched.h.
#include "frontend/transforms/vmap/batched.h"

#include <fmt/format.h>

#include <atomic>

#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/error.h"

namespace fermata {

constinit thread_local const VmapFrame* vmap_frame = nullptr;

namespace {

/// Only the one key: the mode of the thread may be chosen inside the scope, and stays.
void set_frame(const VmapFrame* frame) {
  vmap_frame = frame;
  const DispatchKeySet others = thread_keys.included - DispatchKeySet(Functionality::batched);
  thread_keys.included = frame != nullptr ? others | Functionality::batched : others;
}

BatchedTensor& payload_of(TensorImpl* impl) { return static_cast<BatchedTensor&>(*impl->payload); }

}  // namespace

InsideLevel::InsideLevel(const VmapFrame* frame) : saved_(vmap_frame) { set_frame(frame); }
InsideLevel::~InsideLevel() { set_frame(saved_); }

VmapLevel new_level(std::int64_t size) {
  static std::atomic<std::uint64_t> last{0};
  return {vmap_frame == nullptr ? 1 : vmap_frame->level.depth + 1, last.fetch_add(1, std::memory_order_relaxed) + 1,
          size};
}

SavedFrame::SavedFrame(const VmapFrame* frame) {
  for (const VmapFrame* f = frame; f != nullptr; f = f->outer) chain_.push_back(*f);
  for (std::size_t i = 0; i < chain_.size(); ++i) chain_[i].outer = i + 1 < chain_.size() ? &chain_[i + 1] : nullptr;
}

const BatchedTensor& batched_tensor(const Tensor& t) {
  static_cast<void>(t.node());  // a view takes over what its base has become
  return payload_of(t.impl());
}

const VmapFrame& frame_of(const BatchedTensor& t, Location where) {
  for (const VmapFrame* f = vmap_frame; f != nullptr; f = f->outer)
    if (f->level.serial == t.level.serial) return *f;
  throw UserError(1744, format_error(1744, "UserError", "a tensor from inside vmap is used after the vmap ended", {},
                                     where, "return it from the function instead of storing it"));
}

Tensor make_batched(Tensor physical, const VmapLevel& level, bool batched) {
  const Shape all = physical.shape();
  TensorType type{physical.dtype(), all};
  if (batched) type.shape = Shape(std::span<const std::int64_t>(all).subspan(1));
  const DispatchKeySet keys =
      ((physical.keys() & kDataKeys) - kCompoundKeys) | Functionality::dense | Functionality::batched;
  Tensor result(type, keys, std::make_unique<BatchedTensor>(std::move(physical), level, batched));
  CaptureScope::mark_unnoticed(result.node());  // nothing that a compiled function would have to write back
  return result;
}

Tensor without_history(const Tensor& t) { return with_history(t, {}); }
Tensor same_value(const Tensor& t) { return with_history(t, grad_edge(t)); }

Tensor at_level(const Tensor& t, const VmapLevel& level) {
  if (depth_of(t) >= level.depth) return t;
  return make_batched(same_value(t), level, false);
}

Tensor detach_all_levels(const Tensor& t) {
  if (!is_batched(t)) return without_history(t);
  const BatchedTensor& b = batched_tensor(t);
  return make_batched(detach_all_levels(b.physical), b.level, b.batched);
}

Tensor ordinary_tensor(const Tensor& t) {
  Tensor below = t;
  while (is_batched(below)) below = Tensor(batched_tensor(below).physical);
  return below;
}

void take_payload(TensorImpl* target, const Tensor& from) {
  auto payload = std::make_unique<BatchedTensor>(batched_tensor(from));
  delete std::exchange(target->payload, payload.release());
}

}  // namespace fermata

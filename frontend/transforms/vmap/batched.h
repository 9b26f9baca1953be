// Levels of vmap, and the tensors inside them.
//
// Every vmap call in progress on a thread is a level; they form a stack. Inside a level a batched tensor is a wrapper:
// what callers see has no batch axis, the tensor below the wrapper has it in front. A wrapper may be around a wrapper
// of an outer level. A gradient history hangs on the identity that it was recorded for: one on a wrapper belongs to a
// gradient taken inside that level, one on the tensor below to a gradient taken outside (docs/adr/008).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dispatch/operator.h"
#include "runtime/tensor.h"

namespace fermata {

struct VmapLevel {
  unsigned depth = 0;        // 1 for the outermost vmap; 0: not inside one
  std::uint64_t serial = 0;  // of the call: tells a level from a later one of the same depth
  std::int64_t size = 0;     // of the batch
};

/// A level inside the innermost one of this thread, for a batch of that size.
VmapLevel new_level(std::int64_t size);

struct VmapFrame {
  VmapLevel level;
  const VmapFrame* outer = nullptr;
};
/// The innermost level of this thread, null outside of vmap.
extern constinit thread_local const VmapFrame* vmap_frame;

/// Makes `frame` the innermost level for a scope. The thread has the Batched key while there is one.
class InsideLevel {
 public:
  explicit InsideLevel(const VmapFrame* frame);
  ~InsideLevel();
  InsideLevel(const InsideLevel&) = delete;
  InsideLevel& operator=(const InsideLevel&) = delete;

 private:
  const VmapFrame* saved_;
};

/// A copy of a frame and those around it, to run something again inside a level whose vmap may be over.
class SavedFrame {
 public:
  explicit SavedFrame(const VmapFrame* frame);
  SavedFrame(const SavedFrame&) = delete;
  SavedFrame& operator=(const SavedFrame&) = delete;
  const VmapFrame* frame() const { return chain_.empty() ? nullptr : &chain_.front(); }

 private:
  std::vector<VmapFrame> chain_;  // innermost first; never changed, so that they can point at each other
};

struct BatchedTensor final : TensorPayload {
  BatchedTensor(Tensor below, const VmapLevel& of, bool has_batch)
      : physical(std::move(below)), level(of), batched(has_batch) {}
  std::string_view kind() const override { return "a tensor inside vmap"; }
  std::string_view hint() const override { return "return it from the function and read it outside"; }

  Tensor physical;  // a separate identity, never written in place
  VmapLevel level;
  bool batched;  // axis 0 of `physical` is the batch; else it is the same for the whole batch
};

inline bool is_batched(const Tensor& t) { return t.keys().has(Functionality::batched); }
/// A sparse or quantized tensor: the other wrappers.
inline bool is_composite_tensor(const Tensor& t) { return t.impl()->payload != nullptr && !is_batched(t); }
/// The payload of a tensor for which is_batched() holds.
const BatchedTensor& batched_tensor(const Tensor& t);
/// Depth of the level that a tensor belongs to, 0 for ordinary tensors.
inline unsigned depth_of(const Tensor& t) { return is_batched(t) ? batched_tensor(t).level.depth : 0; }
inline VmapLevel level_of(const Tensor& t) { return is_batched(t) ? batched_tensor(t).level : VmapLevel{}; }
/// The frame of a wrapper's level. UserError FM1744 where its vmap is over, or runs on another thread.
const VmapFrame& frame_of(const BatchedTensor& t, Location where);

/// A wrapper of `physical`, whose identity must never be written.
Tensor make_batched(Tensor physical, const VmapLevel& level, bool batched);
/// A new identity of the same value without a history of its own. What is below a wrapper keeps its history.
Tensor without_history(const Tensor& t);
/// A new identity of the same value and history.
Tensor same_value(const Tensor& t);
/// The same value as a tensor of a level; itself where it is of that level, or of one further in.
Tensor at_level(const Tensor& t, const VmapLevel& level);
/// Without a history at any level.
Tensor detach_all_levels(const Tensor& t);
/// The ordinary tensor below all wrappers.
Tensor ordinary_tensor(const Tensor& t);

/// Gives a wrapper what is in another one: the second half of a write in place.
void take_payload(TensorImpl* target, const Tensor& from);

/// A boxed call below the Autograd key, by a kernel of that key: of wrappers, back to the Batched kernel that sent it
/// up.
void redispatch_below_autograd(const Call& call, Stack& stack);
/// Does anything below a wrapper have a history, which is of a gradient taken further out?
bool has_history_below(const Tensor& t);
/// The Batched kernel of custom operators.
void batched_boxed(const Call& call, Stack& stack);
/// Fills the Batched cells of every op.
void register_batched_kernels();

}  // namespace fermata

// The tape: what is remembered of a differentiable call until the backward pass.
//
// A GradNode stands for the gradient of one value. It points at the GradNodes of the operands that want a gradient, so
// the tape is a graph in the direction of the backward pass, beside the graph of values and never part of it. It holds
// values as nodes, weakly (docs/adr/003), and never an identity, so that there are no cycles.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "ir/op.h"
#include "runtime/operand.h"
#include "runtime/tensor.h"

namespace fermata {

struct GradNode;
struct VjpRule;

/// A value kept for the backward pass. Recording counts it as the tape's own, so a sync does not store it unless that
/// is cheaper than computing it again. Values never change, so writing in place afterwards does no harm.
///
/// The tape of a gradient inside vmap keeps wrappers, and tensors from outer levels with their history: identities that
/// nothing else references. No outer history leads back to this tape, so there are still no cycles.
class SavedValue {
 public:
  SavedValue() = default;
  explicit SavedValue(const Tensor& tensor);
  /// The value of an operand, or the result, of a call at a level of vmap.
  SavedValue(const Tensor& tensor, unsigned depth);
  SavedValue(SavedValue&& o) noexcept
      : node_(std::exchange(o.node_, nullptr)), keys_(o.keys_), wrapped_(std::move(o.wrapped_)) {}
  SavedValue& operator=(SavedValue&& o) noexcept {
    std::swap(node_, o.node_), std::swap(keys_, o.keys_), std::swap(wrapped_, o.wrapped_);
    return *this;
  }
  ~SavedValue() { release(); }

  explicit operator bool() const { return node_ != nullptr || wrapped_.defined(); }
  /// A new identity of the value, without history.
  Tensor unpack() const;
  void release();

 private:
  Node* node_ = nullptr;
  DispatchKeySet keys_;
  Tensor wrapped_;
};

void destroy_tape(GradNode* dead);

/// A counted reference to a GradNode.
class GradEdge {
 public:
  GradEdge() = default;
  /// Takes over a reference.
  explicit GradEdge(GradNode* node) : node_(node) {}
  GradEdge(const GradEdge& o);
  GradEdge(GradEdge&& o) noexcept : node_(std::exchange(o.node_, nullptr)) {}
  GradEdge& operator=(GradEdge o) noexcept {
    std::swap(node_, o.node_);
    return *this;
  }
  ~GradEdge();

  explicit operator bool() const { return node_ != nullptr; }
  GradNode* get() const { return node_; }
  GradNode* operator->() const { return node_; }
  GradNode* release() { return std::exchange(node_, nullptr); }
  bool operator==(const GradEdge&) const = default;

 private:
  GradNode* node_ = nullptr;
};

/// Where the gradients of a leaf add up. Owned by the leaf; its GradNode does not keep it alive.
struct LeafGradient {
  std::mutex mutex;
  Tensor grad;
};

struct GradOperand {
  GradEdge edge;                 // null where no gradient is wanted
  SavedValue value;              // where the rule reads it
  Scalar scalar;                 // where the operand is a host number
  std::unique_ptr<Shape> shape;  // where it is not that of the result
  DType dtype = DType::f32;
  bool is_scalar = false;
  bool is_turned = false;  // a matrix whose columns lie together, such as the transposed weight of a linear layer
};

/// A backward pass that is not a rule of the table: fermata/custom_function.h.
struct CustomBackward {
  virtual ~CustomBackward() = default;
  virtual std::string_view name() const = 0;
  /// The gradients of the operands from those of the results, undefined where nothing reached one.
  virtual std::vector<Tensor> backward(GradNode* node, std::span<const Tensor> gradients, bool with_graph) = 0;
  virtual void release() = 0;
};

/// The rare part of a GradNode.
struct GradDetail {
  std::vector<std::int64_t> attributes;  // as in ir/graph.h
  std::weak_ptr<LeafGradient> leaf;
  std::unique_ptr<CustomBackward> custom_backward;  // for all results of a call
  std::uint32_t result_count = 0;                   // of that call
  std::int64_t result = -1;                         // the node above it for one result: which
};

struct GradNode {
  std::atomic<std::uint32_t> refs{1};
  Op op = Op::input;        // input: a leaf; copy: also the mark that grad(fn) puts on an argument
  std::uint32_t count = 0;  // operands
  bool spent = false;       // the saved values have been used and let go
  bool in_scope = false;    // `where` has a scope
  std::uint64_t depth = 0;  // greater than that of every operand: the backward order
  std::uint64_t scope = 0;  // tape_scope when it was recorded
  const VjpRule* rule = nullptr;
  std::unique_ptr<GradDetail> detail;
  SavedValue result;  // where the rule reads it
  Location where;

  std::span<GradOperand> operands() { return {std::launder(reinterpret_cast<GradOperand*>(this + 1)), count}; }
  std::span<const GradOperand> operands() const {
    return {std::launder(reinterpret_cast<const GradOperand*>(this + 1)), count};
  }
  std::span<const std::int64_t> attributes() const {
    return detail != nullptr ? std::span<const std::int64_t>(detail->attributes) : std::span<const std::int64_t>();
  }
  bool saves_values() const;
  /// Lets the saved values go; a second backward pass through them is an error from then on.
  void spend();
};
static_assert(sizeof(GradNode) % alignof(GradOperand) == 0);
/// Up to this many operands a node comes from the pool.
inline constexpr std::size_t kMaxPooledOperands = 4096;

/// Grows with every scope that is entered (function_tape.h), so a node of a scope or of one inside it has at least its
/// number; 0 outside of all.
extern constinit thread_local std::uint64_t tape_scope;

/// A node with room for `count` operands, one reference held. Its line keeps the scope of this thread.
GradEdge make_grad_node(Op op, std::size_t count, Location where);

inline GradEdge::GradEdge(const GradEdge& o) : node_(o.node_) {
  if (node_ != nullptr) node_->refs.fetch_add(1, std::memory_order_relaxed);
}
inline GradEdge::~GradEdge() {
  if (node_ != nullptr && drop_references(node_->refs, 1u)) destroy_tape(node_);
}

/// The node for one result of a call with a hand-written backward pass.
GradEdge result_edge(GradNode* call, std::int64_t result);

/// What autograd hangs on an identity.
struct GradState final : TensorSlot {
  GradEdge edge;                       // of a view: the chain from its base, made when it was last asked for
  std::shared_ptr<LeafGradient> leaf;  // leaves that want a gradient
  GradEdge base_edge;                  // views: what `edge` was made from, and at which version
  std::uint64_t base_version = 0;

  static void* operator new(std::size_t bytes);
  static void operator delete(void* block, std::size_t bytes) noexcept;
};

inline GradState* grad_state(const TensorImpl* impl) { return static_cast<GradState*>(impl->slot); }
/// The state of an identity, made if there is none.
GradState& ensure_grad_state(const Tensor& tensor);
/// Where the gradient of a tensor goes; null where none is wanted. That of a view follows from its base.
GradEdge grad_edge(const Tensor& tensor);
/// A new identity of the same value, with this history instead of the one it has. A wrapper's stays one, around the
/// same.
Tensor with_history(const Tensor& value, GradEdge edge);

}  // namespace fermata

// Tensor: a handle to an identity.
//
// Three things are kept apart. A Node is a value. A TensorImpl is an identity, the storage cell: all copies of a handle
// share it, an in-place write gives it another value and a higher version, and gradients attach to it. A view is an
// identity of its own that names the cell it looks into and how; its value is derived again whenever the version of
// that cell has moved on, so views alias in both modes.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/key_set.h"
#include "runtime/node.h"

namespace fermata {

class Operand;
class Tensor;
struct TensorImpl;

/// Anything that hangs on an identity without the runtime knowing what it is; autograd keeps its state in one.
struct TensorSlot {
  virtual ~TensorSlot() = default;
};

/// What a wrapper tensor really is: the parts of a sparse or quantized tensor, the batch behind a tensor inside vmap.
/// Its node has a type and no data, its keys lead every call to kernels that know the payload.
struct TensorPayload {
  virtual ~TensorPayload() = default;
  virtual std::string_view kind() const = 0;  // "a sparse tensor"
  virtual std::string_view hint() const = 0;  // what to do instead of reading elements
};

/// One step from a cell's value towards a view of it: a view op and its attributes, as in ir/graph.h.
struct ViewStep {
  Op op;
  std::vector<std::int64_t> attributes;
  Shape sizes;  // of the step's result
};

struct ViewInfo {
  TensorImpl* base;  // a reference is held; never a view itself
  std::vector<ViewStep> steps;
  Shape sizes, strides;  // of the view over the row-major elements of the base
  std::int64_t offset = 0;
  /// The base's version that `value` was derived from. Written after it, under a lock: threads may read one view at
  /// once.
  std::atomic<std::uint64_t> seen_version{~0ull};
};

struct alignas(64) TensorImpl {
  std::atomic<std::uint64_t> refs;
  Node* value;          // null in a view that has not been read yet
  DispatchKeySet keys;  // Autograd is in here only where a gradient is needed, so the check is free
  std::uint64_t version;
  TensorSlot* slot;        // owned
  ViewInfo* view;          // owned; null for ordinary tensors
  Storage* pinned;         // the buffer whose address was handed out; a reference is held
  TensorPayload* payload;  // owned; null for ordinary tensors
};
static_assert(sizeof(TensorImpl) == 64);

/// Steps of the engine above this layer that reading a tensor needs. Installed once, by frontend/engine/context.cpp.
struct TensorHooks {
  void (*materialize)(Node* node, const char* reason, std::source_location where) = nullptr;
  Node* (*view_value)(TensorImpl* view) = nullptr;  // makes the node of a view for the base's present value
  void (*written)(TensorImpl* impl) = nullptr;      // an identity is about to get another value
};
extern TensorHooks tensor_hooks;

void destroy_impl(TensorImpl* impl);
/// The node of an ordinary tensor that nobody else has, with nothing else referring to it; null if `tensor` is not
/// that. The reference moves: from the tensor, which is no more, to an edge of the caller's.
Node* take_lone_node(Tensor& tensor);

using Location = std::source_location;

/// A position and the line that names it, because operator[] cannot have a defaulted argument.
struct Index {
  template <std::integral T> Index(T position, Location line = Location::current())
      : value(static_cast<std::int64_t>(position)), where(line) {}
  std::int64_t value;
  Location where;
};

/// A multi-dimensional array: a cheap handle that is copied by sharing. What a member does beyond naming parts of the
/// handle is the frontend's business (frontend/tensor*.cpp); free functions of the same names are in fermata/ops.h.
class Tensor {
 public:
  Tensor() = default;
  /// Takes over a kTensor reference of the node.
  Tensor(Node* value, DispatchKeySet keys);
  explicit Tensor(TensorImpl* impl) : impl_(impl) {}
  /// A wrapper tensor: callers see `type`, kernels of the keys see the payload.
  Tensor(const TensorType& type, DispatchKeySet keys, std::unique_ptr<TensorPayload> payload);
  Tensor(const Tensor& o) : impl_(o.impl_) {
    if (impl_ != nullptr) impl_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& o) noexcept : impl_(std::exchange(o.impl_, nullptr)) {}
  /// Names another tensor. Not of a temporary: x[0] = y would change nothing; x[0].assign(y) writes elements.
  Tensor& operator=(Tensor o) & noexcept {
    std::swap(impl_, o.impl_);
    return *this;
  }
  ~Tensor() {
    if (impl_ != nullptr && drop_references(impl_->refs, std::uint64_t{1})) destroy_impl(impl_);
  }

  bool defined() const { return impl_ != nullptr; }
  TensorImpl* impl() const { return impl_; }
  /// Those of a view include those of its base, which a write through another alias may have changed.
  DispatchKeySet keys() const { return impl_->view == nullptr ? impl_->keys : impl_->keys | impl_->view->base->keys; }
  /// The present value; for a view derived from its base if that has changed.
  Node* node() const { return impl_->view == nullptr ? impl_->value : view_node(); }
  /// Gives the identity another value: takes over a kTensor reference. Bumps the version.
  void set_node(Node* value) const;

  // What is known without computing.
  DType dtype() const;
  Shape shape() const;
  unsigned rank() const;
  /// Size of an axis, counted from the end where negative.
  std::int64_t size(std::int64_t axis, Location where = Location::current()) const;
  std::int64_t element_count() const;
  /// True until the value has been computed.
  bool pending() const { return node()->pending(); }

  // Values.
  /// Computes the value and waits for it.
  const Tensor& sync(Location where = Location::current()) const;
  /// The only element, converted to T: a C++ number, or std::complex of float or double.
  template <class T> T item(Location where = Location::current()) const;
  /// All elements in row-major order, converted to T.
  template <class T> std::vector<T> to_vector(Location where = Location::current()) const;
  /// The address of the first element, in row-major order without gaps. From then on this tensor keeps that buffer:
  /// later in-place writes are computed at once and land there. Take the address anew before each round of writes
  /// through it: what was recorded before this call then keeps the value it saw. DTypeError unless T is the element
  /// type, ValueError for a view with gaps.
  template <class T> T* data(Location where = Location::current()) const;

  // Views: they alias this tensor. Errors are those of the free functions of the same names.
  Tensor operator[](const Index& index) const;
  /// The elements at positions along the first axis, or, of a bool mask of the leading axes, where that is true
  /// (fermata/subscript.h). A tensor of its own.
  Tensor operator[](const Tensor& index) const;
  Tensor slice(std::int64_t axis, std::int64_t start, std::int64_t stop, std::int64_t step = 1,
               Location where = Location::current()) const;
  Tensor reshape(std::initializer_list<std::int64_t> sizes, Location where = Location::current()) const;
  Tensor reshape(const Shape& sizes, Location where = Location::current()) const;
  Tensor permute(std::initializer_list<std::int64_t> axes, Location where = Location::current()) const;
  /// The last two axes exchanged.
  Tensor mT(Location where = Location::current()) const;
  Tensor astype(DType dtype, Location where = Location::current()) const;
  /// This tensor on a device, as fermata::to().
  Tensor to(BackendKey device, Location where = Location::current()) const;

  // In-place writes: every alias sees them.
  Tensor& operator+=(const Operand& other);
  Tensor& operator-=(const Operand& other);
  Tensor& operator*=(const Operand& other);
  Tensor& operator/=(const Operand& other);
  /// Replaces the elements; the operand broadcasts and is cast to this dtype.
  const Tensor& assign(const Operand& other) const;

  // Gradients.
  bool requires_grad() const;
  /// Marks a leaf as wanting a gradient; GradientError for anything but floating or complex leaves.
  Tensor& requires_grad(bool wanted, Location where = Location::current());
  /// The accumulated gradient, undefined before the first backward().
  Tensor grad() const;
  void zero_grad() const;
  /// Adds d(this)/d(leaf) to grad() of every leaf that wants one. `seed` defaults to 1 and is required unless this has
  /// one element.
  void backward(const Tensor& seed, bool retain_graph = false, Location where = Location::current()) const;
  void backward(Location where = Location::current()) const;
  /// The same value without its history.
  Tensor detach() const;
  /// How often this identity has been written in place.
  std::uint64_t version() const;

 private:
  Node* view_node() const;
  TensorImpl* impl_ = nullptr;
};

}  // namespace fermata

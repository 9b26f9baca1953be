// Tensor: a handle to an identity.
//
// Three things are kept apart. A Node is a value. A TensorImpl is an identity, the storage cell: all copies of a handle
// share it, an in-place write gives it another value and a higher version, and gradients attach to it. A view is a
// separate identity that refers to its base cell and the view ops; its value is derived again whenever the version of
// the base has changed, so views alias in both modes.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/device.h"
#include "ir/key_set.h"
#include "runtime/integer_list.h"
#include "runtime/node.h"

namespace fermata {

class Operand;
class Subscript;
class Tensor;
struct TensorImpl;
struct TensorIndex;
struct TopK;

/// Data attached to an identity that is opaque to the runtime; autograd keeps its state in one.
struct TensorSlot {
  virtual ~TensorSlot() = default;
};

/// The contents of a wrapper tensor: the parts of a sparse or quantized tensor, the batch behind a tensor inside vmap.
/// Its node has a type and no data; its keys dispatch every call to kernels that know the payload.
struct TensorPayload {
  virtual ~TensorPayload() = default;
  virtual std::string_view kind() const = 0;  // "a sparse tensor"
  virtual std::string_view hint() const = 0;  // the alternative to reading elements
};

/// One step from a cell's value to a view of it: a view op and its attributes, as in ir/graph.h.
struct ViewStep {
  Op op;
  BlockVector<std::int64_t> attributes;
  Shape sizes;  // of the step's result
};
using ViewSteps = BlockVector<ViewStep>;

struct ViewInfo {
  ViewInfo() {}  // not an aggregate, which would be cleared first
  /// The same view of another base.
  ViewInfo(TensorImpl* cell, const ViewInfo& view);
  static void* operator new(std::size_t bytes) { return BlockPool::allocate(BlockPool::class_of(bytes)); }
  static void operator delete(void* block) noexcept {
    BlockPool::release(block, BlockPool::class_of(sizeof(ViewInfo)));
  }

  TensorImpl* base = nullptr;  // owns a reference; never a view itself
  ViewSteps steps;
  Shape sizes, strides;  // of the view, over the row-major elements of the base
  std::int64_t offset = 0;
  /// The base's version from which `value` was derived. Written after `value`, under a lock: several threads may read
  /// one view at once.
  std::atomic<std::uint64_t> seen_version{~0ull};
};

struct alignas(64) TensorImpl {
  std::atomic<std::uint64_t> refs;
  Node* value;             // null for a view that has not been read yet
  DispatchKeySet keys;     // contains Autograd only if a gradient is needed, so the check is free
  std::uint64_t version;   // writes so far, above the number of the scope that it was made in
  TensorSlot* slot;        // owned
  ViewInfo* view;          // owned; null for ordinary tensors
  Storage* pinned;         // the buffer whose address data() returned; owns a reference
  TensorPayload* payload;  // owned; null for ordinary tensors
};
static_assert(sizeof(TensorImpl) == 64);

/// The bits of a version that count writes. Those above them are the number of the scope of a captured function on this
/// thread in which the identity was made; 0 outside.
constexpr unsigned kVersionBits = 40;
extern constinit thread_local std::uint64_t first_version;

/// Functions of the engine above this layer that reading a tensor needs. Installed once, by
/// frontend/engine/context.cpp.
struct TensorHooks {
  void (*materialize)(Node* node, const char* reason, std::source_location where) = nullptr;
  Node* (*view_value)(TensorImpl* view) = nullptr;  // makes the node of a view for the base's current value
  void (*written)(TensorImpl* impl) = nullptr;      // called before an identity gets another value
};
extern TensorHooks tensor_hooks;

void destroy_impl(TensorImpl* impl);
/// Takes the node of an ordinary tensor if neither is referenced elsewhere; else returns null. The reference moves from
/// the tensor, which becomes undefined, to an edge of the caller.
Node* take_unique_node(Tensor& tensor);

using Location = std::source_location;

/// A position and the caller's line, because operator[] cannot have a default argument.
struct Index {
  template <std::integral T> Index(T position, Location line = Location::current())
      : value(static_cast<std::int64_t>(position)), where(line) {}
  std::int64_t value;
  Location where;
};

/// Throws ValueError FM1306: an undefined tensor was used, by `function` if it is not empty.
[[noreturn]] void throw_undefined(std::string_view function, Location where);

/// A multi-dimensional array: a cheap handle; copies share the value. A default-constructed tensor is undefined:
/// requesting its value, type or history throws ValueError FM1306. Members that do more than access the handle are
/// implemented in the frontend (frontend/tensor/).
class Tensor {
 public:
  Tensor() = default;
  /// Takes over a kTensor reference to the node.
  Tensor(Node* value, DispatchKeySet keys);
  explicit Tensor(TensorImpl* impl) : impl_(impl) {}
  /// A wrapper tensor: callers see `type`, kernels of the keys see the payload.
  Tensor(const TensorType& type, DispatchKeySet keys, std::unique_ptr<TensorPayload> payload);
  Tensor(const Tensor& o) : impl_(o.impl_) {
    if (impl_ != nullptr) impl_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& o) noexcept : impl_(std::exchange(o.impl_, nullptr)) {}
  /// Rebinds the handle to another tensor. Not for temporaries: x[0] = y would change nothing; x[0].assign(y) writes
  /// elements.
  Tensor& operator=(Tensor o) & noexcept {
    std::swap(impl_, o.impl_);
    return *this;
  }
  ~Tensor() {
    if (impl_ != nullptr && drop_references(impl_->refs, std::uint64_t{1})) destroy_impl(impl_);
  }

  bool defined() const { return impl_ != nullptr; }
  /// Null if undefined.
  TensorImpl* impl() const { return impl_; }
  /// The keys of a view include those of its base, which a write through another alias may have changed.
  DispatchKeySet keys() const {
    const TensorImpl& own = cell();
    return own.view == nullptr ? own.keys : own.keys | own.view->base->keys;
  }
  /// The current value; for a view, derived again from its base if that has changed.
  Node* node() const {
    const TensorImpl& own = cell();
    return own.view == nullptr ? own.value : view_node();
  }
  /// Gives the identity another value and increments its version. Takes over a kTensor reference.
  void set_node(Node* value) const;

  // Properties that are known without computing.
  DType dtype(Location where = Location::current()) const;
  Shape shape(Location where = Location::current()) const;
  unsigned rank(Location where = Location::current()) const;
  /// Size of an axis; a negative axis counts from the end.
  std::int64_t size(std::int64_t axis, Location where = Location::current()) const;
  std::int64_t element_count(Location where = Location::current()) const;
  Device device(Location where = Location::current()) const;
  /// True until the value has been computed.
  bool pending() const { return node()->pending(); }
  // Aliases under the names of PyTorch and NumPy.
  Shape sizes(Location where = Location::current()) const { return shape(where); }
  unsigned dim(Location where = Location::current()) const { return rank(where); }
  unsigned ndim(Location where = Location::current()) const { return rank(where); }
  std::int64_t numel(Location where = Location::current()) const { return element_count(where); }

  // Values.
  /// Computes the value and waits for it.
  const Tensor& sync(Location where = Location::current()) const;
  /// The only element, converted to T: a C++ number, or std::complex of float or double.
  template <class T> T item(Location where = Location::current()) const;
  /// All elements in row-major order, converted to T.
  template <class T> std::vector<T> to_vector(Location where = Location::current()) const;
  /// The address of the first element, in row-major order without gaps. From then on this tensor keeps that buffer:
  /// later in-place writes are computed immediately into it. Call data() again before each round of writes through the
  /// pointer, so that calls recorded before keep the value they read. Throws DTypeError unless T is the element type,
  /// ValueError for a view with gaps.
  template <class T> T* data(Location where = Location::current()) const;

  // Every other member is the free function of its name with this tensor as the first operand (frontend/tensor/
  // methods.cpp); shapes, dtypes and errors are documented there: fermata/ops.h, reductions.h, views.h and so on.

  // Views: they alias this tensor.
  Tensor operator[](const Index& index) const;
  /// The elements at positions along the first axis, or, for a bool mask of the leading axes, the elements where it is
  /// true (fermata/subscript.h). Returns a copy, not a view.
  Tensor operator[](const TensorIndex& index) const;
  /// x.index({1, Slice(0, 2), ellipsis}), as in fermata/subscript.h.
  Tensor index(std::initializer_list<Subscript> subscripts, Location where = Location::current()) const;
  Tensor slice(std::int64_t axis, std::int64_t start = kNone, std::int64_t stop = kNone, std::int64_t step = 1,
               Location where = Location::current()) const;
  Tensor select(std::int64_t axis, std::int64_t position, Location where = Location::current()) const;
  Tensor reshape(const IntegerList& sizes, Location where = Location::current()) const&;
  Tensor reshape(const IntegerList& sizes, Location where = Location::current()) &&;
  /// x.reshape(2, -1) is x.reshape({2, -1}); so for view() and permute().
  template <std::integral... More> Tensor reshape(const Index& first, const Index& second, More... more) const& {
    return reshape({first.value, second.value, static_cast<std::int64_t>(more)...}, first.where);
  }
  template <std::integral... More> Tensor reshape(const Index& first, const Index& second, More... more) && {
    return std::move(*this).reshape({first.value, second.value, static_cast<std::int64_t>(more)...}, first.where);
  }
  /// reshape() under PyTorch's name.
  Tensor view(const IntegerList& sizes, Location where = Location::current()) const& { return reshape(sizes, where); }
  Tensor view(const IntegerList& sizes, Location where = Location::current()) && {
    return std::move(*this).reshape(sizes, where);
  }
  template <std::integral... More> Tensor view(const Index& first, const Index& second, More... more) const& {
    return reshape({first.value, second.value, static_cast<std::int64_t>(more)...}, first.where);
  }
  template <std::integral... More> Tensor view(const Index& first, const Index& second, More... more) && {
    return std::move(*this).reshape({first.value, second.value, static_cast<std::int64_t>(more)...}, first.where);
  }
  Tensor flatten(Location where = Location::current()) const&;
  Tensor flatten(Location where = Location::current()) &&;
  Tensor ravel(Location where = Location::current()) const& { return flatten(where); }
  Tensor ravel(Location where = Location::current()) && { return std::move(*this).flatten(where); }
  Tensor permute(const IntegerList& axes, Location where = Location::current()) const&;
  Tensor permute(const IntegerList& axes, Location where = Location::current()) &&;
  template <std::integral... More> Tensor permute(const Index& first, const Index& second, More... more) const& {
    return permute({first.value, second.value, static_cast<std::int64_t>(more)...}, first.where);
  }
  template <std::integral... More> Tensor permute(const Index& first, const Index& second, More... more) && {
    return std::move(*this).permute({first.value, second.value, static_cast<std::int64_t>(more)...}, first.where);
  }
  Tensor transpose(std::int64_t first = -2, std::int64_t second = -1, Location where = Location::current()) const&;
  Tensor transpose(std::int64_t first = -2, std::int64_t second = -1, Location where = Location::current()) &&;
  Tensor swapaxes(std::int64_t first, std::int64_t second, Location where = Location::current()) const&;
  Tensor swapaxes(std::int64_t first, std::int64_t second, Location where = Location::current()) &&;
  Tensor moveaxis(const IntegerList& source, const IntegerList& destination,
                  Location where = Location::current()) const;
  /// All axes in the opposite order.
  Tensor T(Location where = Location::current()) const&;
  Tensor T(Location where = Location::current()) &&;
  Tensor t(Location where = Location::current()) const& { return T(where); }
  Tensor t(Location where = Location::current()) && { return std::move(*this).T(where); }
  /// The last two axes swapped.
  Tensor mT(Location where = Location::current()) const&;
  Tensor mT(Location where = Location::current()) &&;
  Tensor squeeze(const IntegerList& axes = {}, Location where = Location::current()) const&;
  Tensor squeeze(const IntegerList& axes = {}, Location where = Location::current()) &&;
  Tensor expand_dims(const IntegerList& axes, Location where = Location::current()) const&;
  Tensor expand_dims(const IntegerList& axes, Location where = Location::current()) &&;
  Tensor unsqueeze(std::int64_t axis, Location where = Location::current()) const& { return expand_dims(axis, where); }
  Tensor unsqueeze(std::int64_t axis, Location where = Location::current()) && {
    return std::move(*this).expand_dims(axis, where);
  }
  Tensor broadcast_to(const IntegerList& sizes, Location where = Location::current()) const;
  /// broadcast_to(), except that -1 keeps the size of an axis.
  Tensor expand(const IntegerList& sizes, Location where = Location::current()) const;
  Tensor flip(const IntegerList& axes = {}, Location where = Location::current()) const;
  Tensor diagonal(std::int64_t offset = 0, Location where = Location::current()) const;
  std::vector<Tensor> split(std::int64_t parts, std::int64_t axis = 0, Location where = Location::current()) const;
  std::vector<Tensor> split(const IntegerList& sizes, std::int64_t axis = 0,
                            Location where = Location::current()) const;
  std::vector<Tensor> chunk(std::int64_t parts, std::int64_t axis = 0, Location where = Location::current()) const;
  std::vector<Tensor> unbind(std::int64_t axis = 0, Location where = Location::current()) const;

  // Conversions and transfers.
  Tensor astype(DType dtype, Location where = Location::current()) const&;
  Tensor astype(DType dtype, Location where = Location::current()) &&;
  Tensor to(DType dtype, Location where = Location::current()) const& { return astype(dtype, where); }
  Tensor to(DType dtype, Location where = Location::current()) && { return std::move(*this).astype(dtype, where); }
  Tensor to(Device device, Location where = Location::current()) const&;
  Tensor cpu(Location where = Location::current()) const { return to(Device(), where); }
  Tensor cuda(int index = 0, Location where = Location::current()) const;
  Tensor copy(Location where = Location::current()) const;
  Tensor clone(Location where = Location::current()) const { return copy(where); }
  /// Returns this tensor if its elements are dense in row-major order, else a copy that is.
  Tensor contiguous(Location where = Location::current()) const;

  // Members of temporaries end their handles, as calls with temporaries do: (x * 2).exp().sum().sync() stores one
  // number.

  // Pointwise: one member per row of the op table, x.exp(), x.add(y), x.maximum(0), ...
#define FERMATA_UNARY(name, rule, formula, vjp, doc)        \
  Tensor name(Location where = Location::current()) const&; \
  Tensor name(Location where = Location::current())&&;
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  Tensor name(const Operand& other) const&;                    \
  Tensor name(const Operand& other)&&;
#include "ir/ops.def"
  Tensor clip(const Operand& low, const Operand& high) const&;
  Tensor clip(const Operand& low, const Operand& high) &&;
  Tensor clamp(const Operand& low, const Operand& high) const&;
  Tensor clamp(const Operand& low, const Operand& high) &&;
  Tensor where(const Tensor& condition, const Operand& other) const;
  Tensor masked_fill(const Tensor& mask, const Operand& value) const;
  Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
                 Location where = Location::current()) const;
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
                Location where = Location::current()) const;
  // Their names in PyTorch.
  Tensor sub(const Operand& other) const& { return subtract(other); }
  Tensor sub(const Operand& other) && { return std::move(*this).subtract(other); }
  Tensor mul(const Operand& other) const& { return multiply(other); }
  Tensor mul(const Operand& other) && { return std::move(*this).multiply(other); }
  Tensor div(const Operand& other) const& { return divide(other); }
  Tensor div(const Operand& other) && { return std::move(*this).divide(other); }
  Tensor neg(Location where = Location::current()) const& { return negative(where); }
  Tensor neg(Location where = Location::current()) && { return std::move(*this).negative(where); }
  Tensor eq(const Operand& other) const& { return equal(other); }
  Tensor eq(const Operand& other) && { return std::move(*this).equal(other); }
  Tensor ne(const Operand& other) const& { return not_equal(other); }
  Tensor ne(const Operand& other) && { return std::move(*this).not_equal(other); }
  Tensor lt(const Operand& other) const& { return less(other); }
  Tensor lt(const Operand& other) && { return std::move(*this).less(other); }
  Tensor le(const Operand& other) const& { return less_equal(other); }
  Tensor le(const Operand& other) && { return std::move(*this).less_equal(other); }
  Tensor gt(const Operand& other) const& { return greater(other); }
  Tensor gt(const Operand& other) && { return std::move(*this).greater(other); }
  Tensor ge(const Operand& other) const& { return greater_equal(other); }
  Tensor ge(const Operand& other) && { return std::move(*this).greater_equal(other); }

  // Along axes: x.sum(), x.max(-1), x.any({0, 1}, true), ...
#define FERMATA_REDUCE(name, rule, vjp, doc)                                                                     \
  Tensor name(const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current()) const&; \
  Tensor name(const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current())&&;
#define FERMATA_SCAN(name, monoid, rule, doc)                                      \
  Tensor name(std::optional<std::int64_t> axis = {}, bool include_initial = false, \
              Location where = Location::current()) const;
#include "ir/ops.def"
  Tensor mean(const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current()) const&;
  Tensor mean(const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current()) &&;
  Tensor var(const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
             Location where = Location::current()) const&;
  Tensor var(const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
             Location where = Location::current()) &&;
  Tensor stddev(const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
                Location where = Location::current()) const&;
  Tensor stddev(const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
                Location where = Location::current()) &&;
  Tensor std(const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
             Location where = Location::current()) const&;
  Tensor std(const IntegerList& axes = {}, bool keepdims = false, double correction = 0,
             Location where = Location::current()) &&;
  Tensor logsumexp(const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current()) const&;
  Tensor logsumexp(const IntegerList& axes = {}, bool keepdims = false, Location where = Location::current()) &&;
  /// linalg::vector_norm().
  Tensor norm(double ord = 2, const IntegerList& axes = {}, bool keepdims = false,
              Location where = Location::current()) const&;
  Tensor norm(double ord = 2, const IntegerList& axes = {}, bool keepdims = false,
              Location where = Location::current()) &&;
  Tensor median(std::optional<std::int64_t> axis = {}, bool keepdims = false,
                Location where = Location::current()) const;
  Tensor softmax(std::int64_t axis = -1, Location where = Location::current()) const&;
  Tensor softmax(std::int64_t axis = -1, Location where = Location::current()) &&;
  Tensor log_softmax(std::int64_t axis = -1, Location where = Location::current()) const&;
  Tensor log_softmax(std::int64_t axis = -1, Location where = Location::current()) &&;
  Tensor cumsum(std::optional<std::int64_t> axis = {}, Location where = Location::current()) const;
  Tensor cumprod(std::optional<std::int64_t> axis = {}, Location where = Location::current()) const;
  Tensor sort(std::int64_t axis = -1, bool descending = false, Location where = Location::current()) const;
  Tensor argsort(std::int64_t axis = -1, bool descending = false, Location where = Location::current()) const;
  TopK topk(std::int64_t k, std::int64_t axis = -1, bool largest = true, Location where = Location::current()) const;
  Tensor bincount(Location where = Location::current()) const;
  std::vector<Tensor> nonzero(Location where = Location::current()) const;
  /// unique_values().
  Tensor unique(Location where = Location::current()) const;

  // Products and matrices.
  Tensor matmul(const Tensor& other, Location where = Location::current()) const&;
  Tensor matmul(const Tensor& other, Location where = Location::current()) &&;
  Tensor mm(const Tensor& other, Location where = Location::current()) const& { return matmul(other, where); }
  Tensor mm(const Tensor& other, Location where = Location::current()) && {
    return std::move(*this).matmul(other, where);
  }
  Tensor dot(const Tensor& other, Location where = Location::current()) const;
  Tensor trace(Location where = Location::current()) const;
  Tensor tril(std::int64_t k = 0, Location where = Location::current()) const;
  Tensor triu(std::int64_t k = 0, Location where = Location::current()) const;

  // Indexing and rearranging elements.
  Tensor take(const Tensor& index, std::int64_t axis = 0, Location where = Location::current()) const;
  Tensor gather(const Tensor& index, std::int64_t axis = 0, Location where = Location::current()) const;
  Tensor index_select(std::int64_t axis, const Tensor& index, Location where = Location::current()) const;
  Tensor masked_select(const Tensor& mask, Location where = Location::current()) const;
  Tensor roll(const IntegerList& shift, const IntegerList& axes = {}, Location where = Location::current()) const;
  Tensor repeat(std::int64_t count, std::optional<std::int64_t> axis = {}, Location where = Location::current()) const;
  Tensor tile(const IntegerList& repetitions, Location where = Location::current()) const;

  // In-place writes: every alias sees them.
  Tensor& operator+=(const Operand& other);
  Tensor& operator-=(const Operand& other);
  Tensor& operator*=(const Operand& other);
  Tensor& operator/=(const Operand& other);
  Tensor& operator%=(const Operand& other);
  Tensor& operator&=(const Operand& other);
  Tensor& operator|=(const Operand& other);
  Tensor& operator^=(const Operand& other);
  /// Replaces the elements; the operand broadcasts and is cast to this dtype.
  const Tensor& assign(const Operand& other) const;
  // assign() and x op= y under PyTorch's names.
  const Tensor& copy_(const Operand& other) const { return assign(other); }
  const Tensor& fill_(const Operand& value) const { return assign(value); }
  const Tensor& zero_(Location where = Location::current()) const;
  Tensor& add_(const Operand& other) { return *this += other; }
  Tensor& sub_(const Operand& other) { return *this -= other; }
  Tensor& mul_(const Operand& other) { return *this *= other; }
  Tensor& div_(const Operand& other) { return *this /= other; }

  // Gradients.
  bool requires_grad(Location where = Location::current()) const;
  /// Marks a leaf as requiring a gradient; throws GradientError unless it is a floating or complex leaf.
  Tensor& requires_grad(bool wanted, Location where = Location::current());
  Tensor& requires_grad_(bool wanted = true, Location where = Location::current()) {
    return requires_grad(wanted, where);
  }
  /// The accumulated gradient, undefined before the first backward().
  Tensor grad(Location where = Location::current()) const;
  void zero_grad(Location where = Location::current()) const;
  /// Adds d(this)/d(leaf) to grad() of every leaf that requires one. `seed` defaults to 1 and is required unless this
  /// has one element.
  void backward(const Tensor& seed, bool retain_graph = false, Location where = Location::current()) const;
  void backward(Location where = Location::current()) const;
  /// The same value without its history.
  Tensor detach(Location where = Location::current()) const;
  /// The number of in-place writes to this identity.
  std::uint64_t version() const;

 private:
  const TensorImpl& cell() const {
    if (impl_ == nullptr) [[unlikely]]
      throw_undefined({}, {});
    return *impl_;
  }
  const TensorImpl& cell(std::string_view function, Location where) const {
    if (impl_ == nullptr) [[unlikely]]
      throw_undefined(function, where);
    return *impl_;
  }
  Node* view_node() const;
  TensorImpl* impl_ = nullptr;
};

namespace detail {
/// The result of a call with a temporary that nothing else uses. Ends its handle, so that a sync in the same statement
/// does not store its value.
inline Tensor consumed(Tensor& temporary, Tensor result) {
  temporary = Tensor();
  return result;
}
}  // namespace detail

/// A tensor used as an index, and the caller's line.
struct TensorIndex {
  TensorIndex(const Tensor& index, Location line = Location::current()) : positions(index), where(line) {}
  const Tensor& positions;
  Location where;
};

}  // namespace fermata

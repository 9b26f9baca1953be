// The members of Tensor that compute, read and write; views are in views.cpp, gradients in transforms/.
#include "runtime/tensor.h"

#include <fmt/format.h>

#include <cstring>

#include "dispatch/backend.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/alias.h"
#include "frontend/engine/no_memory.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/device_scope.h"
#include "frontend/tensor/host_elements.h"
#include "frontend/transforms/trace/tracer.h"
#include "ir/error.h"
#include "runtime/buffer_window.h"

namespace fermata {

void throw_no_elements(const Tensor& x, const char* reason, Location where) {
  const TensorPayload* payload = x.impl()->payload;
  throw UnsupportedError(2005,
                         format_error(2005, "UnsupportedError",
                                      fmt::format("{}: {} has no elements to read", reason,
                                                  payload != nullptr ? payload->kind() : "a meta tensor"),
                                      describe(x), where, payload != nullptr ? std::string(payload->hint()) : ""));
}

namespace {

Node* computed(const Tensor& x, const char* reason, Location where) {
  require_defined(reason, x, where);
  Node* node = x.node();
  if (tracing()) [[unlikely]]
    tracer->note_read(x, reason, where);
  if (node->pending())
    tensor_hooks.materialize(node, reason, where);
  else if (node->storage.load(std::memory_order_relaxed)->has_no_buffer())
    throw_no_elements(x, reason, where);
  return node;
}

/// A dense copy made now, in either mode.
Tensor dense_copy(const Tensor& x, Location where) {
  const KeyGuard plain({}, DispatchKeySet(Functionality::capture) | Functionality::autograd);
  return general_call(Op::copy, {&x, 1}, {}, where);
}

template <class T> std::vector<T> converted(const HostElements& elements, const char* function, Location where) {
  std::vector<T> result;
  result.reserve(static_cast<std::size_t>(elements.count()));
  if constexpr (!std::is_arithmetic_v<T>)
    if (is_complex(elements.dtype())) {
      visit_complex(elements.dtype(), [&]<class From>() {
        const auto* from = static_cast<const From*>(elements.data());
        for (std::int64_t i = 0; i < elements.count(); ++i) result.push_back(static_cast<T>(from[i]));
      });
      return result;
    }
  const bool known = visit_stored(elements.dtype(), [&]<class From>() {
    const auto* from = static_cast<const From*>(elements.data());
    for (std::int64_t i = 0; i < elements.count(); ++i) result.push_back(convert_element<T>(from[i]));
  });
  if (is_complex(elements.dtype()))
    throw DTypeError(
        1110, format_error(1110, "DTypeError",
                           fmt::format("{}: {} does not convert to a real number", function, name(elements.dtype())),
                           {}, where, "take its real(), imag() or abs() first"));
  if (!known)
    throw UnsupportedError(
        2004, format_error(2004, "UnsupportedError",
                           fmt::format("{}: does not convert {}", function, name(elements.dtype())), {}, where));
  return result;
}

/// Makes the value of x the only user of a dense buffer, which stays that of x from then on.
void* pin(const Tensor& x, Location where) {
  TensorImpl* impl = x.impl();
  if (const ViewInfo* view = impl->view) {
    if (!is_dense(view->sizes, view->strides))
      throw ValueError(1309, format_error(1309, "ValueError", "data: the elements of this view are not contiguous",
                                          describe(x), where, "copy() returns a contiguous tensor"));
    view->base->refs.fetch_add(1, std::memory_order_relaxed);
    const Tensor base(view->base);
    return static_cast<std::byte*>(pin(base, where)) + view->offset * static_cast<std::int64_t>(byte_size(x.dtype()));
  }
  Node* node = computed(x, "data", where);
  if (const ShardedValue* const divided = sharded_value(*node)) {
    const Tensor whole = gathered(*divided, x.shape(), where);
    whole.node()->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    x.set_node(node = whole.node());
  }
  if (node->backend != BackendKey::cpu)
    throw DeviceError(1402,
                      format_error(1402, "DeviceError", "data: the tensor is not on the CPU", describe(x), where));
  if (impl->pinned != nullptr) {
    separate_pinned(x);
    return impl->pinned->data;
  }
  Storage* storage = node->storage.load(std::memory_order_acquire);
  // Memory of somebody else may be read only.
  const bool alone =
      node->refs.load(std::memory_order_acquire) == Node::kTensor && storage->unique() && storage->is_own();
  if (!alone || !node->is_dense_leaf()) {
    const Tensor own = dense_copy(x, where);
    own.node()->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    storage = own.node()->storage.load(std::memory_order_acquire);
    x.set_node(own.node());  // views are derived again, from this buffer
  }
  storage->show_to_caller();
  storage->retain();
  StoragePtr window = window_on(StoragePtr(storage));
  impl->value->storage.store(window.release(), std::memory_order_release);
  impl->pinned = storage;  // the reference that the value had
  return storage->data;
}

int rank_of_kind(DType t) { return t == DType::boolean ? 0 : is_integer(t) ? 1 : is_floating(t) ? 2 : 3; }

[[noreturn]] void throw_does_not_fit(std::string_view function, const Tensor& target, const Shape& shape,
                                     Location where) {
  throw ShapeError(1020, format_error(1020, "ShapeError",
                                      fmt::format("{}: shape {} does not match the tensor that is written", function,
                                                  to_string(shape)),
                                      describe(target), where));
}

/// The second half of x op= y: the result keeps the shape and dtype of the target, or the call is an error.
void write_result(std::string_view function, const Tensor& target, const Tensor& result, Location where) {
  if (rank_of_kind(result.dtype()) > rank_of_kind(target.dtype()))
    throw DTypeError(1105, format_error(1105, "DTypeError",
                                        fmt::format("{}: the result is {}, which does not convert to {}", function,
                                                    name(result.dtype()), name(target.dtype())),
                                        describe(target), where));
  if (result.shape() != target.shape()) throw_does_not_fit(function, target, result.shape(), where);
  write(target, astype(result, target.dtype(), where), where);
}

/// The left-hand side of x op= y, at the line of y.
Operand left(const Tensor& target, const Operand& other, std::string_view function) {
  require_defined(function, target, other.where());
  return {target, other.where()};
}

}  // namespace

HostElements::HostElements(const Tensor& x, const char* reason, Location where) {
  const Node* node = computed(x, reason, where);
  const ShardedValue* const divided = sharded_value(*node);
  const Tensor whole = divided != nullptr ? gathered(*divided, x.shape(), where) : x;
  node = whole.node();
  dense_ = node->is_dense_leaf() ? whole : dense_copy(whole, where);
  node = dense_.node();
  dtype_ = node->dtype;
  count_ = element_count(node->sizes());
  data_ = node->storage.load(std::memory_order_acquire)->data;
  if (node->backend == BackendKey::cpu) return;
  const DeviceScope there(reason, device(dense_, where), where);
  from_device_.resize(static_cast<std::size_t>(count_) * byte_size(dtype_));
  backend(node->backend)->copy_to_host(from_device_.data(), data_, from_device_.size());
  data_ = from_device_.data();
}

const Tensor& Tensor::sync(Location where) const {
  require_defined("sync", *this, where);
  if (const Storage* s = this->node()->storage.load(std::memory_order_acquire); s != nullptr && s->has_no_buffer())
    return *this;  // the parts of a wrapper tensor are synced where they are read
  const Node* node = computed(*this, "sync", where);
  if (Backend* device = backend(node->backend)) device->synchronize();
  return *this;
}

template <class T> T Tensor::item(Location where) const try {
  require_defined("item", *this, where);
  if (const std::int64_t count = element_count(); count != 1)
    throw ValueError(1310, format_error(1310, "ValueError", fmt::format("item: {} elements, not one", count),
                                        describe(*this), where));
  return converted<T>(HostElements(*this, "item", where), "item", where)[0];
} catch (const std::bad_alloc&) { throw_no_memory("item", where); }

template <class T> std::vector<T> Tensor::to_vector(Location where) const try {
  return converted<T>(HostElements(*this, "to_vector", where), "to_vector", where);
} catch (const std::bad_alloc&) { throw_no_memory("to_vector", where); }

template <class T> T* Tensor::data(Location where) const {
  require_defined("data", *this, where);
  if (dtype() != dtype_of<T>)
    throw DTypeError(1106,
                     format_error(1106, "DTypeError",
                                  fmt::format("data: the element type is {}, not {}", name(dtype()), name(dtype_of<T>)),
                                  describe(*this), where));
  return static_cast<T*>(pin(*this, where));
}

#define FERMATA_DTYPE(enumerator, name, cpp_type, bytes, kind) \
  template cpp_type* Tensor::data<cpp_type>(Location) const;
#include "ir/dtypes.def"
#define FERMATA_READ(T)                       \
  template T Tensor::item<T>(Location) const; \
  template std::vector<T> Tensor::to_vector<T>(Location) const;
FERMATA_READ(bool)
FERMATA_READ(signed char)
FERMATA_READ(unsigned char)
FERMATA_READ(short)
FERMATA_READ(unsigned short)
FERMATA_READ(int)
FERMATA_READ(unsigned int)
FERMATA_READ(long)
FERMATA_READ(unsigned long)
FERMATA_READ(long long)
FERMATA_READ(unsigned long long)
FERMATA_READ(float)
FERMATA_READ(double)
FERMATA_READ(std::complex<float>)
FERMATA_READ(std::complex<double>)
#undef FERMATA_READ

#define FERMATA_WRITE(symbol, op)                                                     \
  Tensor& Tensor::operator symbol(const Operand& other) {                             \
    const Tensor result = fermata::op(left(*this, other, "operator" #symbol), other); \
    write_result("operator" #symbol, *this, result, other.where());                   \
    return *this;                                                                     \
  }
FERMATA_WRITE(+=, add)
FERMATA_WRITE(-=, subtract)
FERMATA_WRITE(*=, multiply)
FERMATA_WRITE(/=, divide)
FERMATA_WRITE(%=, remainder)
FERMATA_WRITE(&=, bitwise_and)
FERMATA_WRITE(|=, bitwise_or)
FERMATA_WRITE(^=, bitwise_xor)
#undef FERMATA_WRITE

const Tensor& Tensor::assign(const Operand& other) const {
  const Location where = other.where();
  require_defined("assign", *this, where);
  if (!other.is_tensor()) {
    write(*this, fermata::full(shape(), other.scalar(), dtype(), fermata::device(*this), where), where);
    return *this;
  }
  require_defined("assign", other.tensor(), where);
  Tensor value = fermata::astype(other.tensor(), dtype(), where);
  const Shape own = shape(), given = value.shape();
  if (broadcast_shapes(own, given) != own) throw_does_not_fit("assign", *this, given, where);
  if (given != own) value = fermata::broadcast_to(value, own, where);
  // A cell holds a value of its own: the address of either may be handed out later.
  if (impl_->view == nullptr) value = fermata::copy(value, where);
  write(*this, value, where);
  return *this;
}

}  // namespace fermata

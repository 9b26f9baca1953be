// See tensor.h: the part of Tensor that is about identities and values, without the frontend.
#include "runtime/tensor.h"

#include <new>

#include "ir/error.h"
#include "runtime/allocator.h"
#include "runtime/uniquely_owned.h"

namespace fermata {

TensorHooks tensor_hooks;
constinit thread_local std::uint64_t first_version = 0;

ViewInfo::ViewInfo(TensorImpl* cell, const ViewInfo& view)
    : base(cell),
      steps(view.steps),
      sizes(view.sizes),
      strides(view.strides),
      offset(view.offset),
      seen_version(cell->version) {}

namespace {
constexpr auto impl_class() { return BlockPool::class_of(sizeof(TensorImpl)); }

/// Room for the identity of a value, which is let go where there is none.
void* allocate_impl_of(Node* value) try { return BlockPool::allocate(impl_class()); } catch (...) {
  if (value != nullptr && drop_references(value->refs, Node::kTensor)) destroy_node(value);
  throw;
}
}  // namespace

Tensor::Tensor(Node* value, DispatchKeySet keys)
    : impl_(::new (allocate_impl_of(value))
                TensorImpl{{1}, value, keys, first_version, nullptr, nullptr, nullptr, nullptr}) {}

Tensor::Tensor(const TensorType& type, DispatchKeySet keys, std::unique_ptr<TensorPayload> payload)
    : Tensor(make_leaf(type, Storage::nowhere(), keys.backend(), Node::kTensor), keys) {
  impl_->payload = payload.release();
}

void destroy_impl(TensorImpl* impl) {
  // A view's base is dropped by its own handle; chains of identities do not exist (a base is never a view), so this
  // does not recurse beyond one step.
  if (impl->slot != nullptr) delete std::exchange(impl->slot, nullptr);
  delete impl->payload;
  if (impl->view != nullptr) {
    Tensor base(impl->view->base);
    delete impl->view;
  }
  if (impl->value != nullptr && drop_references(impl->value->refs, Node::kTensor)) destroy_node(impl->value);
  if (impl->pinned != nullptr) impl->pinned->release();
  impl->~TensorImpl();
  BlockPool::release(impl, impl_class());
}

Node* take_unique_node(Tensor& tensor) {
  if (!is_uniquely_owned(tensor)) return nullptr;
  Node* const node = take_value(tensor);
  tensor = Tensor();
  return node;
}

void Tensor::set_node(Node* value) const {
  if (tensor_hooks.written != nullptr) tensor_hooks.written(impl_);
  Node* old = std::exchange(impl_->value, value);
  ++impl_->version;
  if (old != nullptr && drop_references(old->refs, Node::kTensor)) destroy_node(old);
}

Node* Tensor::view_node() const {
  const ViewInfo& view = *impl_->view;
  if (view.seen_version.load(std::memory_order_acquire) != view.base->version) return tensor_hooks.view_value(impl_);
  return impl_->value;
}

void throw_undefined(std::string_view function, Location where) {
  constexpr std::string_view kWhat = "an operand is an undefined tensor";
  throw ValueError(
      1306, format_error(1306, "ValueError",
                         std::string(function) + (function.empty() ? "" : ": ") + std::string(kWhat), {}, where));
}

DType Tensor::dtype(Location where) const {
  const TensorImpl& own = cell("dtype", where);
  return own.view != nullptr ? own.view->base->value->dtype : own.value->dtype;
}

Shape Tensor::shape(Location where) const {
  const TensorImpl& own = cell("shape", where);
  return own.view != nullptr ? own.view->sizes : Shape(own.value->sizes());
}

unsigned Tensor::rank(Location where) const {
  const TensorImpl& own = cell("rank", where);
  return own.view != nullptr ? own.view->sizes.rank() : own.value->rank;
}

std::int64_t Tensor::size(std::int64_t axis, Location where) const {
  return shape(where)[normalize_axis("size", axis, {dtype(where), shape(where)}, where)];
}

std::int64_t Tensor::element_count(Location where) const { return fermata::element_count(shape(where)); }

std::uint64_t Tensor::version() const {
  const TensorImpl& own = cell();
  const std::uint64_t version = own.view != nullptr ? own.view->base->version : own.version;
  return version & ((std::uint64_t{1} << kVersionBits) - 1);
}

}  // namespace fermata

// See fermata/library.h.
#include "fermata/library.h"

#include "dispatch/backend.h"
#include "dispatch/call.h"
#include "fermata/integer_list.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/device_scope.h"
#include "frontend/tensor/host_elements.h"

namespace fermata {

Elements::Elements(const Tensor& x, Location where) : keep_(x) {
  require_defined("elements", x, where);
  Node* node = x.node();
  if (node->pending()) tensor_hooks.materialize(node, "a kernel reads a pending tensor", where);
  if (node->storage.load(std::memory_order_acquire)->has_no_buffer()) throw_no_elements(x, "elements", where);
  if (const ShardedValue* const divided = sharded_value(*node))
    keep_ = gathered(*divided, x.shape(), where), node = keep_.node();
  view_ = view_of(*node, strides_);
}

bool Elements::dense() const {
  return is_dense(std::span(view_.sizes, view_.rank), std::span(view_.strides, view_.rank));
}

Tensor empty(const IntegerList& sizes, DType dtype, Device device, Location where) {
  const std::int64_t count = check_shape("empty", sizes, dtype, where);
  const TensorType type{dtype, Shape(sizes)};
  if (device == BackendKey::meta) return meta_tensor(type);
  Backend* const known = backend(device.backend());
  if (known == nullptr)
    throw DeviceError(1403, format_error(1403, "DeviceError",
                                         std::string("empty: no backend for ") +
                                             std::string(kBackendNames[static_cast<std::size_t>(device.backend())]),
                                         {}, where));
  const DeviceScope there("empty", device, where);
  StoragePtr storage(known->allocate(static_cast<std::size_t>(count) * byte_size(dtype)));
  Node* leaf = make_leaf(type, storage.get(), device.backend(), Node::kTensor);
  static_cast<void>(storage.release());
  return Tensor(leaf, DispatchKeySet(device.backend()) | Functionality::dense);
}

}  // namespace fermata

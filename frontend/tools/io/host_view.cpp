// See fermata/host_view.h.
#include "fermata/host_view.h"

#include <fmt/format.h>

#include "fermata/device.h"
#include "frontend/engine/alias.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"
#include "frontend/tools/io/mapped_file.h"
#include "ir/error.h"
#include "ir/infer.h"
#include "runtime/buffer_window.h"

namespace fermata::detail {

const void* read_only_elements(const Tensor& x, DType dtype, Tensor& keep, Location where) {
  require_defined("HostView", x, where);
  if (x.dtype() != dtype)
    throw DTypeError(1106,
                     format_error(1106, "DTypeError",
                                  fmt::format("HostView: the element type is {}, not {}", name(x.dtype()), name(dtype)),
                                  describe(x), where));
  if (device(x, where) != BackendKey::cpu)
    throw DeviceError(1402,
                      format_error(1402, "DeviceError", "HostView: the tensor is not on the CPU", describe(x), where));
  x.sync(where);
  Node* node = x.node();
  if (node->is_dense_leaf() && !is_window(*node->storage.load(std::memory_order_acquire))) {
    // An identity of its own for the value: a write to x gives x another one.
    node->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
    keep = Tensor(node, DispatchKeySet(BackendKey::cpu) | Functionality::dense);
  } else {
    keep = x.detach(where).copy(where);
  }
  return HostElements(keep, "HostView", where).data();
}

Tensor tensor_over_memory(const void* elements, std::size_t count, DType dtype, const IntegerList& sizes,
                          std::shared_ptr<const void> owner, Location where) {
  const std::int64_t wanted = check_shape("borrow", sizes, dtype, where);
  if (static_cast<std::uint64_t>(wanted) != count)
    throw ShapeError(
        1017, format_error(1017, "ShapeError",
                           fmt::format("borrow: {} values for shape {}", count, to_string(Shape(sizes))), {}, where));
  const std::string_view bytes(static_cast<const char*>(elements), count * byte_size(dtype));
  return tensor_over(std::move(owner), bytes, dtype, Shape(sizes));
}

}  // namespace fermata::detail

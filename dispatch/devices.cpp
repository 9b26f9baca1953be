// See devices.h.
#include "dispatch/devices.h"

#include <fmt/format.h>

#include "dispatch/kernel_table.h"
#include "ir/error.h"
#include "runtime/backend_memory.h"

namespace fermata {
namespace {

std::string_view text(BackendKey b) { return kBackendNames[static_cast<std::size_t>(b)]; }

bool is_element(const Node& n) { return n.rank == 0 && n.backend == BackendKey::cpu; }

StoragePtr copy_of_element(BackendKey backend, const Node& n, const Storage& storage) {
  const std::size_t bytes = byte_size(n.dtype);
  const std::int64_t offset = n.is_dense_leaf() ? 0 : n.extra->offset;
  StoragePtr copy(allocate_on(backend, bytes));
  const auto* from = static_cast<const std::byte*>(storage.data) + offset * static_cast<std::int64_t>(bytes);
  fermata::backend(backend)->copy_from_host(copy->data, from, bytes);
  return copy;
}

}  // namespace

BackendKey common_backend(const Call& call, std::span<const Tensor> tensors) {
  const Node* first = nullptr;
  for (const Tensor& t : tensors) {
    const Node* n = t.node();
    if (first != nullptr && n->backend != first->backend && !is_element(*n) && !is_element(*first)) {
      std::vector<ErrorOperand> lines;
      for (const Tensor& each : tensors)
        lines.push_back({"x", to_string(each.dtype(), each.shape()), fmt::format("on {}", text(each.node()->backend))});
      throw DeviceError(1401, format_error(1401, "DeviceError",
                                           fmt::format("{}: operands are on {} and {}", call.entry.name,
                                                       text(first->backend), text(n->backend)),
                                           lines, call.where, "move one of them with to()"));
    }
    if (first == nullptr || is_element(*first)) first = n;
  }
  const BackendKey backend = first != nullptr ? first->backend : call.keys.backend();
  for (const Tensor& t : tensors) compute_elsewhere(t.node(), backend, call.where);
  return backend;
}

void compute_elsewhere(Node* node, BackendKey reader, std::source_location where) {
  if (node->backend == reader || reader == BackendKey::meta) [[likely]]
    return;
  if (node->pending()) tensor_hooks.materialize(node, "an element meets another device", where);
}

Tensor element_on(BackendKey backend, const Node& element) {
  StoragePtr copy = copy_of_element(backend, element, *element.storage.load(std::memory_order_acquire));
  return Tensor(make_leaf({element.dtype, {}}, copy.release(), backend, Node::kTensor),
                DispatchKeySet(backend) | Functionality::dense);
}

LeafBuffer leaf_buffer(const Node& leaf, Storage& storage, BackendKey backend, std::vector<StoragePtr>& staged) {
  if (leaf.backend == backend) [[likely]]
    return {storage.data, &storage};
  staged.push_back(copy_of_element(backend, leaf, storage));
  // The reader adds the leaf's offset, which the copy has not.
  const std::int64_t offset = leaf.is_dense_leaf() ? 0 : leaf.extra->offset;
  return {static_cast<std::byte*>(staged.back()->data) - offset * static_cast<std::int64_t>(byte_size(leaf.dtype))};
}

void require_variant(const Call& call, BackendKey backend, DType operand) {
  const BackendCell* cell = call.entry.backends[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
  if (cell != nullptr)
    for (const KernelVariant& v : cell->variants)
      if (v.dtypes.has(operand)) return;
  if (cell == nullptr || cell->variants.empty())
    throw UnsupportedError(
        2001, format_error(2001, "UnsupportedError",
                           fmt::format("{}: no kernel for {}", call.entry.name, text(backend)), {}, call.where,
                           fmt::format("see `fermata ops {}`; to() moves the operands to a device that has one",
                                       call.entry.name)));
  throw_no_dtype(call.entry, backend, operand, call.where);
}

}  // namespace fermata

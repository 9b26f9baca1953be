// Ownership checks for taking over a tensor's value.
#pragma once

#include "runtime/tensor.h"

namespace fermata {

/// Whether this handle is the only reference to an ordinary tensor and its node.
inline bool is_uniquely_owned(const Tensor& tensor) {
  const TensorImpl* const impl = tensor.impl();
  if (impl == nullptr || impl->refs.load(std::memory_order_acquire) != 1 || impl->value == nullptr) return false;
  if (impl->slot != nullptr || impl->view != nullptr || impl->pinned != nullptr || impl->payload != nullptr)
    return false;
  return impl->value->refs.load(std::memory_order_acquire) == Node::kTensor;
}

/// Moves the node of a uniquely owned tensor to an edge of the caller; the identity stays, without a value.
inline Node* take_value(const Tensor& owned) {
  Node* const node = std::exchange(owned.impl()->value, nullptr);
  node->refs.store(Node::kEdge, std::memory_order_relaxed);
  return node;
}

}  // namespace fermata

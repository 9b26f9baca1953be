// Calls whose operands lie on devices: which one runs them, and elements of the CPU that may meet any.
#pragma once

#include <span>
#include <vector>

#include "dispatch/operator.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// Where the operands of a call are: all on one backend, but for 0-d tensors of the CPU, which may meet any.
/// DeviceError FM1401 names two that differ. That of the call's keys where there are no operands.
BackendKey common_backend(const Call& call, std::span<const Tensor> tensors);
/// Computes an operand that lies on another backend than the one that will read it.
void compute_elsewhere(Node* node, BackendKey reader, std::source_location where);

/// A computed 0-d value of the CPU as one of another backend.
Tensor element_on(BackendKey backend, const Node& element);
/// Where a plan of a backend reads a leaf: its buffer, or a copy of an element, kept in `staged`.
LeafBuffer leaf_buffer(const Node& leaf, Storage& storage, BackendKey backend, std::vector<StoragePtr>& staged);

/// UnsupportedError FM2001 where a backend has no kernel of the op, FM2002 where it has none for the dtype.
void require_variant(const Call& call, BackendKey backend, DType operand);

}  // namespace fermata

// Device selection for calls, and 0-d CPU tensors, which may be combined with any device.
#pragma once

#include <span>
#include <vector>

#include "dispatch/operator.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// Returns the common backend of a call's operands, ignoring 0-d CPU tensors. DeviceError FM1401 if two differ. Without
/// operands, the backend of the call's keys.
BackendKey common_backend(const Call& call, std::span<const Tensor> tensors);
/// Computes a pending operand that is on another backend than its reader.
void compute_elsewhere(Node* node, BackendKey reader, std::source_location where);

/// Copies a computed 0-d CPU value to another backend.
Tensor element_on(BackendKey backend, const Node& element);
/// The buffer from which a plan reads a leaf: its own, or a copy of a 0-d CPU element, kept alive in `staged`.
LeafBuffer leaf_buffer(const Node& leaf, Storage& storage, BackendKey backend, std::vector<StoragePtr>& staged);

/// Throws UnsupportedError FM2001 if a backend has no kernel for the op, FM2002 if it has none for the dtype.
void require_variant(const Call& call, BackendKey backend, DType operand);

}  // namespace fermata

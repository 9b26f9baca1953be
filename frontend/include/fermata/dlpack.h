// DLPack: exchange of tensors with other libraries (https://dmlc.github.io/dlpack, version 0.6 and later).
//
// Callers need <dlpack/dlpack.h>; an engine built without that header throws UnsupportedError.
#pragma once

#include "runtime/tensor.h"

struct DLManagedTensor;

namespace fermata {

/// Exports the CPU elements of x to one consumer, which must call the deleter. They alias x, as by Tensor::data(),
/// unless x is a view with gaps, which is copied.
///
/// DType    real, bool or complex. Errors   DTypeError for quantized tensors; DeviceError FM1402 off the CPU.
DLManagedTensor* to_dlpack(const Tensor& x, Location where = Location::current());
/// Imports a tensor by copying its elements; neither side sees later writes of the other. The producer's deleter is
/// called before this returns or throws.
///
/// Errors   DeviceError FM1402 if the elements are not on the CPU; DTypeError for types without a counterpart.
Tensor from_dlpack(DLManagedTensor* managed, Location where = Location::current());

}  // namespace fermata

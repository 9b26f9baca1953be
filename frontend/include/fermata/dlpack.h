// DLPack: handing tensors to other libraries and taking theirs (https://dmlc.github.io/dlpack, version 0.6 and later).
//
// Of use to callers that have <dlpack/dlpack.h>; an engine built without that header raises UnsupportedError.
#pragma once

#include "runtime/tensor.h"

struct DLManagedTensor;

namespace fermata {

/// The elements of x on the CPU, for one consumer, which calls the deleter. They are those of x itself, as by
/// Tensor::data(), or of a copy where x is a view with gaps.
///
/// DType    real, bool or complex. Errors   DTypeError for quantized tensors; DeviceError FM1402 off the CPU.
DLManagedTensor* to_dlpack(const Tensor& x, Location where = Location::current());
/// A tensor with a copy of the elements: later writes of either side do not show on the other. The producer's deleter
/// has been called when this returns, or throws.
///
/// Errors   DeviceError FM1402 for elements that are not on the CPU; DTypeError for types without a counterpart.
Tensor from_dlpack(DLManagedTensor* managed, Location where = Location::current());

}  // namespace fermata

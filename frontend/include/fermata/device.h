// Devices: where a tensor's elements are stored, and how to move them.
//
// There are the CPU, CUDA devices (fermata/cuda.h), Meta (shapes and dtypes without elements), and three private device
// kinds for out-of-tree backends (fermata/backend.h). Calls run where their operands are. Nothing is moved implicitly,
// except that 0-d CPU tensors may be combined with tensors of any device.
#pragma once

#include <optional>

#include "fermata/integer_list.h"
#include "ir/device.h"
#include "runtime/operand.h"

namespace fermata {

/// The devices that are always available.
constexpr Device cpu() { return BackendKey::cpu; }
constexpr Device meta() { return BackendKey::meta; }

/// Returns where the elements of x are stored. A pending tensor will be on the device that is current when it is
/// computed.
Device device(const Tensor& x, Location where = Location::current());

/// Returns x on a device: x itself if it is there already, else a dense, row-major copy. The gradient is moved back to
/// the device of x. A pending x is computed first, because a plan runs on one device. On the Meta device the result has
/// a shape and dtype but no elements.
///
/// Shapes   [..S] -> [..S]
/// DType    any; unchanged.
/// Errors   DeviceError FM1403 if no backend is registered for the device, FM1406 if there is no device of that index;
///          UserError FM1701 inside a function that is being compiled; UnsupportedError FM2005 for a tensor without
///          elements of its own.
Tensor to(const Tensor& x, Device device, Location where = Location::current());

// fermata/creation.h on a device.
Tensor zeros(const IntegerList& sizes, DType dtype, Device device, Location where = Location::current());
Tensor ones(const IntegerList& sizes, DType dtype, Device device, Location where = Location::current());
Tensor full(const IntegerList& sizes, Scalar value, std::optional<DType> dtype, Device device,
            Location where = Location::current());
Tensor iota(const IntegerList& sizes, std::int64_t axis, Device device, Location where = Location::current());
/// rand() and randn() of fermata/random.h, drawn on the device; the numbers are the same.
Tensor rand(const IntegerList& sizes, DType dtype, Device device, Location where = Location::current());
Tensor randn(const IntegerList& sizes, DType dtype, Device device, Location where = Location::current());

}  // namespace fermata

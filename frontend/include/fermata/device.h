// Devices: where a tensor's elements lie, and how they get elsewhere.
//
// The CPU, CUDA devices (fermata/cuda.h), Meta (types without elements), and devices of three private kinds for
// backends of programs (fermata/backend.h). Calls run where their operands are; nothing is moved unasked, but for 0-d
// tensors of the CPU, which may meet any device.
#pragma once

#include <optional>

#include "fermata/integer_list.h"
#include "ir/device.h"
#include "runtime/operand.h"

namespace fermata {

/// The devices that every machine has.
constexpr Device cpu() { return BackendKey::cpu; }
constexpr Device meta() { return BackendKey::meta; }

/// Where the elements of x are. Those of a pending tensor will be on the device that the thread has chosen then.
Device device(const Tensor& x, Location where = Location::current());

/// x on a device: x itself where it is there already, else a copy, dense and row-major. The gradient goes back to where
/// x is. A pending x is computed: a plan is of one device. Of the Meta device the result has the type and no elements.
///
/// Shapes   [..S] -> [..S]
/// DType    any, kept.
/// Errors   DeviceError FM1403 where no backend is registered for the device, FM1406 where there is none of its index;
///          UserError FM1701 inside a function that is being compiled; UnsupportedError FM2005 for a tensor without
///          elements of its own.
Tensor to(const Tensor& x, Device device, Location where = Location::current());

// New tensors on a device, as fermata/creation.h has them for the CPU.
Tensor zeros(const IntegerList& sizes, DType dtype, Device device, Location where = Location::current());
Tensor ones(const IntegerList& sizes, DType dtype, Device device, Location where = Location::current());
Tensor full(const IntegerList& sizes, Scalar value, std::optional<DType> dtype, Device device,
            Location where = Location::current());
Tensor iota(const IntegerList& sizes, std::int64_t axis, Device device, Location where = Location::current());
/// The numbers that rand() and randn() of fermata/random.h give, drawn where the tensor is.
Tensor rand(const IntegerList& sizes, DType dtype, Device device, Location where = Location::current());
Tensor randn(const IntegerList& sizes, DType dtype, Device device, Location where = Location::current());

}  // namespace fermata

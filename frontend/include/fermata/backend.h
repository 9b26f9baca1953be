// Out-of-tree devices: a backend for a private key, without changes to Fermata.
//
// Not part of fermata/fermata.h. A backend allocates memory, copies bytes to and from the device, and turns a kernel
// description (ir/kernel.h) into an executable; interpret() there defines the semantics. Every op that lowers to a
// kernel description then works on the device, in both modes. Other ops (matmul, sort, ...) need a kernel added with
// add_variant(), or fall back to the CPU if `missing_on_cpu` is set. examples/custom_backend is a complete project.
#pragma once

#include <memory>

#include "dispatch/backend.h"
#include "dispatch/kernel_table.h"
#include "fermata/device.h"

namespace fermata {

struct DeviceOptions {
  /// Ops that have no kernel for the device when it is registered fall back to the CPU: operands are copied to the CPU
  /// and results back. Register the device's own kernels first. If false, calls of such ops are errors.
  bool missing_on_cpu = false;
};

/// Registers a backend under its key: tensor creation, copies, and every op that lowers to a kernel description, in
/// both modes. Eager calls run as plans of one node. Backends with `can_compile` false have only the kernels added by
/// add_variant(). Call it once per key.
///
/// Errors   InternalError FM9003 if the key already has a backend.
void register_device(BackendKey key, std::unique_ptr<Backend> backend, const DeviceOptions& options = {});

}  // namespace fermata

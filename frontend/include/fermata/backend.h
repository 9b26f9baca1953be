// Devices of your own: a backend for a private key, without a change to Fermata.
//
// Not part of fermata/fermata.h. A backend says where memory comes from, how bytes cross, and how a kernel description
// (ir/kernel.h) becomes something that runs: interpret() there is its meaning. Everything that a description can say
// then works on the device, eagerly and compiled; what it cannot (matmul, sort, ...) is a kernel of its own, added with
// add_variant(), or runs on the CPU where that is asked for. examples/custom_backend is such a project.
#pragma once

#include <memory>

#include "dispatch/backend.h"
#include "dispatch/kernel_table.h"
#include "fermata/device.h"

namespace fermata {

struct DeviceOptions {
  /// Ops that the device has no kernel for, when it is registered, run on the CPU: operands are copied there, results
  /// back. Register the device's own kernels first. Off, such calls are errors.
  bool missing_on_cpu = false;
};

/// Makes a backend usable under its key: creation, copies, every op that a kernel description can say, in both modes.
/// Eager calls are plans of one node; backends with `can_compile` false have only the kernels that are added. Once per
/// key.
///
/// Errors   InternalError FM9003 for a second backend of a key.
void register_device(BackendKey key, std::unique_ptr<Backend> backend, const DeviceOptions& options = {});

}  // namespace fermata

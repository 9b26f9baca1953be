// What frontend/context.cpp calls when the library is loaded, beside the registration of kernels.
#pragma once

namespace fermata {

/// FERMATA_MODE=eager: threads that set no mode of their own run eagerly. After the Capture kernels are registered.
void apply_mode_of_environment();
/// The kernels of the composite ops, for every backend.
void register_composites();

}  // namespace fermata

// Images of kernels for architectures by name: by NVRTC, which needs no driver.
#pragma once

#include "dispatch/device_compiler.h"

namespace fermata::gpu {

const DeviceCompiler& image_compiler();

/// The architecture of images that the host executor makes and runs.
inline constexpr std::string_view kHostArchitecture = "host";

}  // namespace fermata::gpu

// The CUDA section of `fermata doctor`.
#pragma once

#include <vector>

#include "dispatch/backend.h"

namespace fermata::gpu {

std::vector<BackendFinding> cuda_findings();

}  // namespace fermata::gpu

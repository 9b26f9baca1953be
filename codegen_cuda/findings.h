// What `fermata doctor` says of CUDA.
#pragma once

#include <vector>

#include "dispatch/backend.h"

namespace fermata::cuda {

std::vector<BackendFinding> cuda_findings();

}  // namespace fermata::cuda

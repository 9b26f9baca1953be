// CUDA as a backend: memory, copies, kernels, streams, recorded runs.
#pragma once

#include <memory>

#include "dispatch/backend.h"

namespace fermata {

std::unique_ptr<Backend> make_cuda_backend();

}  // namespace fermata

// Registers CUDA: its backend, and the kernels of ops that cannot be expressed as kernel descriptions.
#pragma once

namespace fermata {

/// Registers variants in the CUDA cells. Libraries are loaded only when a device is used.
void register_cuda_kernels();

}  // namespace fermata

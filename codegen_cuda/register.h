// Registers CUDA: its backend, and the kernels of ops that no kernel description can say.
#pragma once

namespace fermata {

/// Variants of the cells of CUDA. Loads nothing: libraries are looked for when a device is asked for.
void register_cuda_kernels();

}  // namespace fermata

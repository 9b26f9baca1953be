// Keeps shared libraries loaded that the engine may call or refer to.
#pragma once

namespace fermata {

/// Keeps the shared library that contains `address` loaded after dlclose: plans, pending calls and tensors still refer
/// to its kernels, formulas and source file names.
void keep_loaded(const void* address);

}  // namespace fermata

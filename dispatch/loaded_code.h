// Keeps code in memory that the engine may call or refer to at any time.
#pragma once

namespace fermata {

/// The shared library that `address` lies in stays when it is closed (dlclose): kernels, formulas and the names of
/// source files in it are still referred to by plans, pending calls and tensors.
void keep_loaded(const void* address);

}  // namespace fermata

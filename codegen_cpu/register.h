// Everything this folder offers, as rows of the kernel table.
#pragma once

namespace fermata {

/// Registers the backend and all its kernel variants under BackendKey::cpu. Once, while the library is loaded.
void register_cpu_backend();

}  // namespace fermata

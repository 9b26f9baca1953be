// See loaded_code.h.
#include "dispatch/loaded_code.h"

#include <dlfcn.h>

namespace fermata {

void keep_loaded(const void* address) {
  Dl_info where;
  if (dladdr(address, &where) == 0 || where.dli_fname == nullptr) return;
  // The handle is not closed again. The program itself cannot be opened like this, and need not be.
  static_cast<void>(dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
}

}  // namespace fermata

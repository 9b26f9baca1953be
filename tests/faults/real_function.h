// The function that one of this folder takes the place of.
#pragma once

#include <dlfcn.h>

namespace fermata::faults {

template <class F> F real_function(const char* name) { return reinterpret_cast<F>(dlsym(RTLD_NEXT, name)); }

}  // namespace fermata::faults

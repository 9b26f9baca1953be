// How the kernels of this folder register: those of irregular ops that move elements or add them up, scan, sort and
// search.
//
// They take operands of any strides and any dtype. Results do not depend on the number of threads.
#pragma once

#include "dispatch/kernel_files.h"

namespace fermata {

inline void add_native_kernel(Op op, CallKernel call, Ships ships = Ships::with_run,
                              std::source_location where = std::source_location::current()) {
  add_variant(op, BackendKey::cpu, {.name = "native", .dtypes = kStored, .call = call, .ships = ships, .where = where});
}

}  // namespace fermata

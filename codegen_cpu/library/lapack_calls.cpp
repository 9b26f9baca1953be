// See lapack_calls.h.
#ifdef FERMATA_LAPACK_FOUND
#include "codegen_cpu/library/lapack_calls.h"

/// How OpenBLAS was built: 0 for one thread. Null with another library.
extern "C" int openblas_get_parallel() __attribute__((weak));

namespace fermata::lapack {
namespace {

ForkSafeMutex& mutex = *new ForkSafeMutex;

bool is_for_one_thread() {
  static const bool is = openblas_get_parallel != nullptr && openblas_get_parallel() == 0;
  return is;
}

}  // namespace

OneAtATime::OneAtATime() {
  if (is_for_one_thread()) lock_ = std::unique_lock(mutex);
}

}  // namespace fermata::lapack
#endif

// See lapack_calls.h.
#ifdef FERMATA_LAPACK_FOUND
#include "codegen_cpu/library/lapack_calls.h"

#include <mutex>

#include "ir/error.h"
#include "ir/fork.h"

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

lapack_int called(FunctionRef<lapack_int()> routine) {
  const lapack_int outcome = [&] {
    std::unique_lock<std::mutex> alone(mutex, std::defer_lock);
    if (is_for_one_thread()) alone.lock();
    return routine();
  }();
  if (outcome == LAPACK_WORK_MEMORY_ERROR || outcome == LAPACK_TRANSPOSE_MEMORY_ERROR)
    throw OutOfMemoryError(3001, format_error(3001, "OutOfMemoryError", "LAPACK cannot allocate a work array", {}, {}));
  return outcome;
}

}  // namespace fermata::lapack
#endif

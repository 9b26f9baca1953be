// See lapack_calls.h.
#ifdef FERMATA_LAPACK_FOUND
#include "codegen_cpu/library/lapack_calls.h"

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "ir/error.h"
#include "ir/fork.h"
#include "runtime/environment.h"

// Of OpenBLAS; null with another library, or one that is built for a single processor.
extern "C" {
/// How it was built: 0 for one thread.
int openblas_get_parallel() __attribute__((weak));
/// The processor that it has kernels of; the choice of it, and the end of that.
const char* gotoblas_corename() __attribute__((weak));
void gotoblas_dynamic_init() __attribute__((weak));
void gotoblas_dynamic_quit() __attribute__((weak));
}

namespace fermata::lapack {
namespace {

ForkSafeMutex& mutex = *new ForkSafeMutex;

/// The best core of OpenBLAS for this processor; null if it has no instructions but those of 2004.
const char* core_of_instructions() {
  const bool has_avx512 =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return has_avx512 ? "SkylakeX" : "Haswell";
  if (__builtin_cpu_supports("avx")) return "Sandybridge";
  if (__builtin_cpu_supports("sse4.2")) return "Nehalem";
  return __builtin_cpu_supports("ssse3") ? "Core2" : nullptr;
}

/// A processor that OpenBLAS does not know (a newer one, or one of a virtual machine) is one of 2004 to it
/// ("Prescott"): those kernels are several times slower, and multiply by zero what nobody has written, so that a NaN of
/// an earlier call makes eigenvalues fail (0.3.21). It chooses again then, by instructions. While the library is
/// loaded, because a change of the environment is seen by all threads.
[[maybe_unused]] const bool is_core_chosen = [] {
  constexpr const char* kChoice = "OPENBLAS_CORETYPE";
  if (gotoblas_corename == nullptr || gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr)
    return false;
  if (std::string_view(gotoblas_corename()) != "Prescott" || environment_variable(kChoice) != nullptr) return false;
  const char* const core = core_of_instructions();
  if (core == nullptr || setenv(kChoice, core, 0) != 0) return false;
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  unsetenv(kChoice);
  return true;
}();

}  // namespace

bool is_for_one_thread() {
  static const bool is = openblas_get_parallel != nullptr && openblas_get_parallel() == 0;
  return is;
}

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

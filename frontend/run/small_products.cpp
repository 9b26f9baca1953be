// libxsmm's kernels for small products, if libfermata_xsmm lies beside this library: the library works without it, and
// what is shipped stays one file.
#include <dlfcn.h>

#include <string>

#include "codegen_cpu/library/xsmm/kernels.h"

namespace fermata::xsmm {
namespace {

struct Library {
  bool (*is_usable)(bool) = nullptr;
  Kernel<float> (*find_f32)(float, int, int, int, int, int) = nullptr;
  Kernel<double> (*find_f64)(double, int, int, int, int, int) = nullptr;

  Library() {
    Dl_info here;
    if (dladdr(reinterpret_cast<const void*>(&xsmm::is_usable), &here) == 0 || here.dli_fname == nullptr) return;
    std::string path = here.dli_fname;
    path.resize(path.rfind('/') + 1);
    void* const library = dlopen((path + FERMATA_XSMM_FILE).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    find_f32 = reinterpret_cast<decltype(find_f32)>(dlsym(library, "_ZN7fermata4xsmm4findEfiiiii"));
    find_f64 = reinterpret_cast<decltype(find_f64)>(dlsym(library, "_ZN7fermata4xsmm4findEdiiiii"));
    if (find_f32 != nullptr && find_f64 != nullptr)
      is_usable = reinterpret_cast<decltype(is_usable)>(dlsym(library, "_ZN7fermata4xsmm9is_usableEb"));
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

}  // namespace

bool is_usable(bool only_avx2) { return library().is_usable != nullptr && library().is_usable(only_avx2); }
Kernel<float> find(float of, int n, int m, int k, int rhs_row, int lhs_row) {
  return library().find_f32(of, n, m, k, rhs_row, lhs_row);
}
Kernel<double> find(double of, int n, int m, int k, int rhs_row, int lhs_row) {
  return library().find_f64(of, n, m, k, rhs_row, lhs_row);
}

}  // namespace fermata::xsmm

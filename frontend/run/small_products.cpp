// libxsmm's kernels for small products, if libfermata_xsmm is next to this library: the library works without it, and
// what is shipped stays one file.
#include <dlfcn.h>

#include <string>

#include "codegen_cpu/library/xsmm/kernels.h"

namespace fermata::xsmm {
namespace {

const Functions* opened() {
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&xsmm::functions), &here) == 0 || here.dli_fname == nullptr) return nullptr;
  std::string path = here.dli_fname;
  path.resize(path.rfind('/') + 1);
  void* const library = dlopen((path + FERMATA_XSMM_FILE).c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : static_cast<const Functions*>(dlsym(library, kFunctionsSymbol));
}

}  // namespace

const Functions* functions() {
  static const Functions* const found = opened();
  return found;
}

}  // namespace fermata::xsmm

// See plugin_loader.h.
#include "frontend/tools/plugin_loader.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

namespace fermata {

void load_plugin(const char* file, const char* symbol, FunctionRef<bool(void* function)> is_right,
                 std::string& failure_reason) {
  std::vector<std::filesystem::path> candidates;
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&load_plugin), &here) != 0 && here.dli_fname != nullptr)
    candidates.push_back(std::filesystem::path(here.dli_fname).parent_path() / file);
  candidates.emplace_back(file);  // where the system looks
  for (const auto& path : candidates) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const reason = dlerror();
      // The reason of a file that exists and cannot be loaded says most.
      std::error_code ignored;
      if (failure_reason.empty() || std::filesystem::exists(path, ignored)) failure_reason = reason;
      continue;
    }
    void* const function = dlsym(library, symbol);
    if (function != nullptr && is_right(function)) return failure_reason.clear();
    failure_reason = path.string() + " is not a plugin for this version of the library";
  }
}

}  // namespace fermata

// See plugin_loader.h.
#include "frontend/tools/plugin_loader.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

namespace fermata {

const void* load_plugin(const char* file, const char* symbol, FunctionRef<bool(const void*)> is_right,
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
    const auto give = reinterpret_cast<const void* (*)()>(dlsym(library, symbol));
    if (give != nullptr && is_right(give())) {
      failure_reason.clear();
      return give();
    }
    failure_reason = path.string() + " is not a plugin for this version of the library";
  }
  return nullptr;
}

}  // namespace fermata

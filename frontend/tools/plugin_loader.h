// Plugins of this library: parts that need what other programs should not have to load.
#pragma once

#include <string>
#include <string_view>

#include "runtime/function_ref.h"

namespace fermata {

/// Finds the function `symbol` of a plugin, from the folder of this library or the system's search path, and takes the
/// first for which `is_right` is true. Where there is none, `failure_reason` says why.
void load_plugin(const char* file, const char* symbol, FunctionRef<bool(void* function)> is_right,
                 std::string& failure_reason);

/// A plugin whose description has a `version`, that of this library; null with the reason where there is none.
template <class Plugin> struct LoadedPlugin {
  std::string failure_reason;
  const Plugin* plugin = nullptr;

  LoadedPlugin(const char* file, const char* symbol, std::string_view version) {
    const auto is_right = [&](void* function) {
      const Plugin* const given = reinterpret_cast<const Plugin* (*)()>(function)();
      if (version != given->version) return false;
      plugin = given;
      return true;
    };
    load_plugin(file, symbol, is_right, failure_reason);
  }
};

}  // namespace fermata

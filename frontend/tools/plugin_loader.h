// Plugins of this library: parts that need what other programs should not have to load.
#pragma once

#include <string>
#include <string_view>

#include "runtime/function_ref.h"

namespace fermata {

/// Calls the function `symbol` of a plugin, from the folder of this library or the system's search path; null,
/// with the reason, where there is no file, or none that `is_right`.
const void* load_plugin(const char* file, const char* symbol, FunctionRef<bool(const void*)> is_right,
                        std::string& failure_reason);

/// A plugin whose description has a `version`, that of this library; null with the reason where there is none.
template <class Plugin> struct LoadedPlugin {
  std::string failure_reason;
  const Plugin* plugin;

  LoadedPlugin(const char* file, const char* symbol, std::string_view version)
      : plugin(static_cast<const Plugin*>(load_plugin(
            file, symbol, [&](const void* p) { return version == static_cast<const Plugin*>(p)->version; },
            failure_reason))) {}
};

}  // namespace fermata

// See processes.h.
#include "frontend/distributed/processes.h"

#include <dlfcn.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fermata/distributed.h"
#include "frontend/distributed/plugin.h"
#include "ir/error.h"
#include "runtime/environment.h"

namespace fermata::distributed {
namespace {

constexpr const char* kPluginFile = "libfermata_mpi.so";

struct LoadedPlugin {
  const Plugin* plugin = nullptr;
  std::string failure_reason;

  LoadedPlugin() {
    std::vector<std::filesystem::path> candidates;
    Dl_info here;
    if (dladdr(reinterpret_cast<const void*>(&distributed::available), &here) != 0 && here.dli_fname != nullptr)
      candidates.push_back(std::filesystem::path(here.dli_fname).parent_path() / kPluginFile);
    candidates.emplace_back(kPluginFile);  // where the system looks
    for (const auto& path : candidates) {
      void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        const char* const reason = dlerror();
        std::error_code ignored;
        if (failure_reason.empty() || std::filesystem::exists(path, ignored)) failure_reason = reason;
        continue;
      }
      const auto give = reinterpret_cast<const Plugin* (*)()>(dlsym(library, kPluginSymbol));
      if (give != nullptr && std::string_view(give()->version) == kPluginVersion) {
        plugin = give();
        failure_reason.clear();
        return;
      }
      failure_reason = path.string() + " is not a plugin of this library";
    }
  }
};

const LoadedPlugin& loaded() {
  static const LoadedPlugin plugin;
  return plugin;
}

/// Whether mpirun, or srun with PMI, has started this process: they leave these for the ranks.
bool was_started_with_others() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (environment_variable(name) != nullptr) return true;
  return false;
}

}  // namespace

const RankGroup& start_processes() {
  if (!was_started_with_others()) return add_group(0, {0}, transport_of_one());
  if (loaded().plugin == nullptr)
    throw UnsupportedError(
        7001, format_error(7001, "UnsupportedError",
                           "distributed: this process was started as one of several, and the part of Fermata that "
                           "calls MPI cannot be loaded: " +
                               loaded().failure_reason,
                           {}, {}));
  World world = loaded().plugin->start({});
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(world.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return add_group(world.rank, std::move(ranks), std::move(world.transport));
}

bool available(std::string* reason) {
  if (reason != nullptr) *reason = loaded().failure_reason;
  return loaded().plugin != nullptr;
}

}  // namespace fermata::distributed

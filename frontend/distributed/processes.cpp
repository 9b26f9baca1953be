// See processes.h.
#include "frontend/distributed/processes.h"

#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dispatch/measured_choices.h"
#include "fermata/distributed.h"
#include "frontend/distributed/plugin.h"
#include "frontend/tools/plugin_loader.h"
#include "ir/error.h"
#include "runtime/environment.h"

namespace fermata::distributed {
namespace {

const LoadedPlugin<Plugin>& loaded() {
  static const auto& plugin = *new LoadedPlugin<Plugin>("libfermata_mpi.so", kPluginSymbol, kPluginVersion);
  return plugin;
}

/// Whether mpirun, or srun with PMI, has started this process: they set these variables for the ranks.
bool was_started_with_others() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (environment_variable(name) != nullptr) return true;
  return false;
}

}  // namespace

const RankGroup& start_processes() {
  if (!was_started_with_others()) return add_group(0, {0}, transport_of_one());
  if (loaded().plugin == nullptr)
    throw UnsupportedError(7001,
                           format_error(7001, "UnsupportedError",
                                        "distributed: this process was started as one of several, but the MPI plugin "
                                        "cannot be loaded: " +
                                            loaded().failure_reason,
                                        {}, {}));
  World world = loaded().plugin->start({});
  if (world.size > 1) hold_choices();  // all ranks must round alike
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(world.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return add_group(world.rank, std::move(ranks), std::move(world.transport), world.local_rank);
}

bool available(std::string* reason) {
  if (reason != nullptr) *reason = loaded().failure_reason;
  return loaded().plugin != nullptr;
}

}  // namespace fermata::distributed

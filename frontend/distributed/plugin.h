// What libfermata_mpi gives to the library that loads it. Both are of one build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/collectives.h"

namespace fermata::distributed {

/// The version of this interface; a plugin of another one is not taken.
inline constexpr const char* kPluginVersion = FERMATA_VERSION;

/// All processes that were started together.
struct World {
  std::unique_ptr<Transport> transport;
  std::int64_t rank, size, local_rank;
};

struct Plugin {
  const char* version;
  World (*start)(std::source_location where);
};
/// The name of the function in libfermata_mpi that gives it.
inline constexpr const char* kPluginSymbol = "fermata_mpi_plugin";

}  // namespace fermata::distributed

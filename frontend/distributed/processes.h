// Which processes were started together, and the plugin through which they talk.
#pragma once

#include "runtime/collectives.h"

namespace fermata::distributed {

/// The world: of one rank, unless something has started this process as one of several. Once.
const RankGroup& start_processes();

}  // namespace fermata::distributed

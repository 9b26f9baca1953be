// The world of ranks that are threads of one process (fermata/mesh.h, simulate).
#pragma once

#include "fermata/distributed.h"

namespace fermata::distributed {

/// That of this thread; null outside of simulate().
extern constinit thread_local const Group* simulated_world;

}  // namespace fermata::distributed

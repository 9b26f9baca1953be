// One collective as requests of MPI: in parts, where it has more elements than a call of MPI takes.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/collectives.h"

namespace fermata::distributed {

/// Elements that one call of MPI moves at most. Tests choose less.
std::int64_t largest_count();

/// Starts a call. Gives what has to stay until the requests have ended.
std::vector<std::byte> start_requests(const CollectiveCall& call, MPI_Comm comm, std::int64_t ranks, std::int64_t rank,
                                      std::vector<MPI_Request>& requests);

}  // namespace fermata::distributed

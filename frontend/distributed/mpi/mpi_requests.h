// One collective as MPI requests: several if it has more elements than one MPI call supports.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/collectives.h"

namespace fermata::distributed {

/// Maximum elements per MPI call; smaller in tests.
std::int64_t largest_count();

/// Starts a call. Returns what must stay alive until the requests have completed.
std::vector<std::byte> start_requests(const CollectiveCall& call, MPI_Comm comm, std::int64_t ranks, std::int64_t rank,
                                      std::vector<MPI_Request>& requests);

}  // namespace fermata::distributed

// The plugin: initializes MPI, and finalizes it when the process exits.
//
// A rank that exits publishes this, waits for the others, and finalizes MPI with them. If another rank waits for it in
// a call, that rank sees that this one has exited, and throws. After a failure MPI is not finalized: mpirun
// then kills the other ranks.
#include "frontend/distributed/plugin.h"

#include <dlfcn.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "frontend/distributed/mpi/mpi_calls.h"
#include "frontend/distributed/mpi/mpi_transport.h"
#include "frontend/distributed/mpi/rank_status.h"
#include "ir/error.h"

namespace fermata::distributed {
namespace {

MPI_Comm goodbye;
std::int64_t ranks = 0;

/// False where one of them is lost.
bool wait_for_the_others() {
  MPI_Request request;
  MPI_Ibarrier(goodbye, &request);
  for (;;) {
    int ended = 0;
    if (MPI_Test(&request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (ended != 0) return true;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      if (RankStatus::is_lost(rank)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void end_with_the_others() {
  if (!why_given_up().empty()) return;  // it stays failed: the others do not wait until its process is gone
  RankStatus::set_state(RankState::ended);
  if (wait_for_the_others()) MPI_Finalize();
}

/// Ranks that are bound to processors have different ones: the union counts.
void compare_with_processors(MPI_Comm machine, std::source_location where) {
  cpu_set_t own, all;
  CPU_ZERO(&own);
  CPU_ZERO(&all);
  sched_getaffinity(0, sizeof own, &own);
  int on_machine = 0;
  require_success(MPI_Comm_size(machine, &on_machine), "MPI_Comm_size", where);
  require_success(MPI_Allreduce(&own, &all, sizeof own, MPI_BYTE, MPI_BOR, machine), "MPI_Allreduce", where);
  set_ranks_share_processors(CPU_COUNT(&all) < on_machine);
}

World start(std::source_location where) {
  // MPI components that are loaded later need its symbols.
  Dl_info mpi;
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &mpi) != 0 && mpi.dli_fname != nullptr)
    dlopen(mpi.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  int is_initialized = 0;
  require_success(MPI_Initialized(&is_initialized), "MPI_Initialized", where);
  if (is_initialized == 0) {
    int provided = MPI_THREAD_SINGLE;
    require_success(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread", where);
    if (provided < MPI_THREAD_SERIALIZED)
      std::fprintf(stderr,
                   "fermata warning: this MPI does not support threads: call collectives from the main thread only\n");
  }
  MPI_Comm comm;
  require_success(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup", where);
  require_success(MPI_Comm_dup(MPI_COMM_WORLD, &goodbye), "MPI_Comm_dup", where);
  int rank = 0, size = 0, local_rank = 0;
  require_success(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank", where);
  require_success(MPI_Comm_size(comm, &size), "MPI_Comm_size", where);
  MPI_Comm machine;
  require_success(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine), "MPI_Comm_split_type",
                  where);
  require_success(MPI_Comm_rank(machine, &local_rank), "MPI_Comm_rank", where);
  compare_with_processors(machine, where);
  MPI_Comm_free(&machine);
  RankStatus::start(comm);
  MPI_Comm_set_errhandler(goodbye, MPI_ERRORS_RETURN);
  ranks = size;
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  auto transport = std::make_unique<MpiTransport>(comm, std::move(all), 0, where);
  if (is_initialized == 0) std::atexit(&end_with_the_others);
  return {std::move(transport), rank, size, local_rank};
}

constexpr Plugin kPlugin{kPluginVersion, &start};

}  // namespace
}  // namespace fermata::distributed

extern "C" const fermata::distributed::Plugin* fermata_mpi_plugin() { return &fermata::distributed::kPlugin; }

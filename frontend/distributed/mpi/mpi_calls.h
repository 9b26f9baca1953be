// Calls of MPI: one thread at a time, and their errors as exceptions.
#pragma once

#include <mpi.h>

#include <mutex>
#include <source_location>
#include <string_view>

namespace fermata::distributed {

/// Held during a call of MPI, never while something is waited for.
std::mutex& mpi_mutex();

/// CollectiveError FM7009 where a call of MPI has failed.
void require_success(int code, std::string_view what, std::source_location where);

}  // namespace fermata::distributed

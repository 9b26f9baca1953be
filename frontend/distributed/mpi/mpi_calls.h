// Calls of MPI: one thread at a time, and their errors as exceptions.
#pragma once

#include <mpi.h>

#include <mutex>
#include <source_location>
#include <string>
#include <string_view>

namespace fermata::distributed {

/// Held during a call of MPI, never while something is waited for.
std::mutex& mpi_mutex();

/// CollectiveError FM7009 where a call of MPI has failed.
void require_success(int code, std::string_view what, std::source_location where);

/// From now on no call is made: something has gone wrong that the ranks cannot agree about.
void give_up_on_mpi(std::string reason);
/// Empty while all is well.
std::string why_given_up();

}  // namespace fermata::distributed

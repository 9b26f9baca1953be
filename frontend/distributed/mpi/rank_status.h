// The state and the last call of each rank on this machine, in shared memory: a call that times out can name the
// missing ranks without asking them.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fermata::distributed {

/// The number of groups of a process that have a status.
inline constexpr int kStatusGroups = 64;

enum class RankState : std::uint32_t { running, ended, failed };

class RankStatus {
 public:
  /// Every rank of the world calls it.
  static void start(MPI_Comm world);

  /// This rank begins call number `number` (from 1) of a group. `name` is a static string.
  static void begin_call(int group, std::uint64_t number, std::string_view name, std::source_location where);
  static void set_state(RankState state);
  /// Whether a rank of this machine has failed. A rank sets this before it frees the memory of its calls, so what was
  /// read there by a call that completed without failures is valid.
  static bool has_failures();

  /// The functions below query another rank of the world. Empty if it is on another machine.
  static std::optional<std::uint64_t> calls(std::int64_t rank, int group);
  static std::optional<RankState> state(std::int64_t rank);
  /// "all_reduce at train.cpp:31"; empty if it has made no call.
  static std::string last_call(std::int64_t rank);
  /// Whether it will make no more calls although it has not exited: it has failed, or its process has died.
  static bool is_lost(std::int64_t rank);
  static bool is_gone(std::int64_t rank);
};

}  // namespace fermata::distributed

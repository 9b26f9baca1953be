// What each rank of this machine did last, in memory that they share: whoever waits in vain can say for whom, without
// an answer of theirs.
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

/// How many groups of a process are told apart; further ones have no status.
inline constexpr int kStatusGroups = 64;

enum class RankState : std::uint32_t { running, ended, failed };

class RankStatus {
 public:
  /// Every rank of the world calls it.
  static void start(MPI_Comm world);

  /// This rank begins call number `number` (from 1 on) of a group: a function of a name that stays.
  static void begin_call(int group, std::uint64_t number, std::string_view name, std::source_location where);
  static void set_state(RankState state);
  /// Whether a rank of this machine has given up. It did so before it gave back the memory of its calls, so what was
  /// read there by a call that ended without failures is right.
  static bool has_failures();

  /// Those below are of another rank of the world. Nothing where it is on another machine.
  static std::optional<std::uint64_t> calls(std::int64_t rank, int group);
  static std::optional<RankState> state(std::int64_t rank);
  /// "all_reduce at train.cpp:31"; empty where it has done nothing.
  static std::string last_call(std::int64_t rank);
  /// Whether it will make no call any more, though it has not ended: it has given up, or its process is gone.
  static bool is_lost(std::int64_t rank);
  static bool is_gone(std::int64_t rank);
};

}  // namespace fermata::distributed

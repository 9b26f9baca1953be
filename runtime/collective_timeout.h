// How long a rank waits for the others in a collective.
#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/environment.h"

namespace fermata {

/// FERMATA_COLLECTIVE_TIMEOUT from the construction of this object on. The time in which this process is stopped, by a
/// debugger or a scheduler, does not count: the other ranks may have been stopped with it.
class CollectiveTimeout {
 public:
  using Clock = std::chrono::steady_clock;
  explicit CollectiveTimeout(Clock::time_point begin = Clock::now()) : looked_(begin) {}

  /// 0 for none.
  static std::chrono::seconds limit() {
    static const std::chrono::seconds seconds(environment_number("FERMATA_COLLECTIVE_TIMEOUT", 600));
    return seconds;
  }
  /// Call it again and again while waiting: of the time since the last call only this much counts.
  static constexpr std::chrono::milliseconds kLongestStep{100};
  bool is_over(Clock::time_point now = Clock::now()) {
    waited_ += std::clamp<Clock::duration>(now - looked_, Clock::duration(0), kLongestStep);
    looked_ = now;
    return limit().count() != 0 && waited_ > limit();
  }

 private:
  Clock::time_point looked_;
  Clock::duration waited_{0};
};

}  // namespace fermata

// See habit_warnings.h.
#include "frontend/engine/habit_warnings.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "frontend/engine/startup.h"
#include "ir/fork.h"
#include "ir/scope.h"
#include "runtime/environment.h"

namespace fermata {

std::atomic<bool> habit_warnings{false};

namespace {

/// A line with so many syncs after so few calls is in a loop; with so many new structures it makes them all the time.
constexpr std::uint64_t kOften = 100, kFewCalls = 64, kManyMisses = 16;

struct Line {
  std::uint64_t syncs = 0, recorded = 0, misses = 0;
  bool warned_of_syncs = false, warned_of_misses = false;
};
struct Lines {
  ForkSafeMutex mutex;
  std::map<std::pair<std::string_view, std::uint32_t>, Line> by_place;
};
Lines& lines() {
  static Lines* const all = new Lines;
  return *all;
}

void warn(std::source_location where, const std::string& text) {
  fmt::print(stderr, "fermata warning: {}: {} (docs/profiling.md)\n", scoped_location(where), text);
}

}  // namespace

void note_habit(std::source_location where, std::uint64_t recorded, std::uint64_t misses) {
  if (where.line() == 0) return;
  Lines& all = lines();
  const std::lock_guard lock(all.mutex);
  Line& line = all.by_place[{where.file_name(), where.line()}];
  ++line.syncs, line.recorded += recorded, line.misses += misses;
  if (!line.warned_of_syncs && line.syncs >= kOften && line.recorded != 0 && line.recorded <= kFewCalls * line.syncs) {
    line.warned_of_syncs = true;
    warn(where,
         fmt::format(
             "a value was computed here {} times, after {} recorded calls each time; calls before a sync are not fused "
             "with calls after it",
             line.syncs, (line.recorded + line.syncs / 2) / line.syncs));
  }
  if (!line.warned_of_misses && line.misses >= kManyMisses) {
    line.warned_of_misses = true;
    warn(where, fmt::format("{} of {} programs here had a new structure; each new structure is compiled", line.misses,
                            line.syncs));
  }
}

void warn_from_environment() {
  const char* const value = environment_variable("FERMATA_WARN");
  habit_warnings.store(value != nullptr && *value != '\0' && std::string_view(value) != "0");
}

}  // namespace fermata

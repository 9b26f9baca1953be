// What a profile has collected, and the texts that are made of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fermata/profile.h"
#include "frontend/engine/profiled_plans.h"
#include "runtime/events.h"
#include "runtime/machine_limits.h"

namespace fermata {

struct ProfileData {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<ThreadEvents> threads;
  std::map<std::uint64_t, ProfiledPlan> plans;  // those that ran

  std::int64_t end() const { return end_ns != 0 ? end_ns : event_clock(); }
};

/// Steps are compared with the limits, so tests give some of their own.
ProfileSummary summarize(const ProfileData& data, const machine::Limits& limits = machine::limits());
/// The trace: an object with `traceEvents`, as Chrome's tools read it, and `fermata`, what reports show beside
/// (the programs of plans, sums).
std::string trace_json(const ProfileData& data);
/// The same with the longest events only, and how many were left out.
std::string trace_json(const ProfileData& data, std::size_t most_events, std::uint64_t& left_out);

}  // namespace fermata

// Profiles: what a part of a program spent its time on, and what could be saved. docs/profiling.md says how to read
// one.
//
//   fm::Profile profile;                       // from here on
//   train(model, batches);
//   std::cout << to_string(profile.summary()); // ends it
//   fm::save(profile, "run.json");             // a trace for Perfetto, and for `fermata report run.json`
//   fm::report("run.html", profile);           // one page that shows all of it
//
// FERMATA_PROFILE=FILE profiles a whole process, and writes the trace when it ends; a report if the name ends in .html.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tensor.h"

namespace fermata {

/// All runs of one step of a plan, or of one call that ran by itself.
struct ProfileStep {
  std::string name, detail;  // "matmul", "matmul [64, 128] [128, 256] -> [64, 256]"
  Location where;
  bool is_kernel = false;  // compiled code; else a call of a function or library
  std::uint64_t runs = 0;
  double us = 0;                     // of all runs; on a device that can tell, by its clock
  double bytes = 0, operations = 0;  // of one run: moved, and done; 0 where nobody counts
  double limit_us = 0;               // the least that all runs take on this machine; 0 where that is not known
};

/// Where time could be saved.
struct ProfileAdvice {
  std::string text;
  Location where;
  double us = 0;  // what it costs now
};

struct ProfileSummary {
  double total_us = 0;
  // Of the threads that make calls:
  double kernels_us = 0, calls_us = 0;  // inside steps
  double compiling_us = 0;              // waited for
  double syncs_us = 0;                  // finding and binding plans, waiting for other threads
  double recording_us = 0;              // from samples
  double own_us = 0;                    // everything else: the program's own code
  double background_us = 0;             // compiling on another thread
  double device_us = 0;                 // that devices worked on steps, by their own clocks, beside the threads
  std::uint64_t syncs = 0, replays = 0, plan_misses = 0, plans_compiled = 0, recorded_calls = 0;
  std::uint64_t events = 0, dropped = 0;  // beyond a million in a thread, events are dropped
  std::uint64_t peak_bytes = 0;           // of memory in use, as it was looked up at syncs and large allocations
  std::vector<ProfileStep> steps;         // most expensive first
  std::vector<ProfileAdvice> advice;      // likewise
};
std::string to_string(const ProfileSummary& summary);

struct ProfileData;

/// Collects what all threads do from its construction on, until stop(), which everything that reads it calls. Profiles
/// may nest and overlap.
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void stop();
  /// Measures the limits of the machine when it is first called in a process: about a tenth of a second.
  ProfileSummary summary();
  /// What was collected, for the functions below.
  const ProfileData& data();

 private:
  std::unique_ptr<ProfileData> data_;
  bool is_running_ = true;
};

/// Writes a trace in Chrome's JSON format, which ui.perfetto.dev and `fermata report` read.
///
/// Errors   FileError FM1602 if the file cannot be written.
void save(Profile& profile, const std::string& path, Location where = Location::current());
/// Writes one HTML page that needs nothing else: summary, graphs, passes, kernels, timeline, memory. docs/report.md
/// describes it.
///
/// Errors   FileError FM1602 if the file cannot be written.
void report(const std::string& path, Profile& profile, Location where = Location::current());

}  // namespace fermata

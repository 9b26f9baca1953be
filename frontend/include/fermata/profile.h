// Profiles: where a program spends its time, and what could be saved. docs/profiling.md explains how to read one.
//
//   fm::Profile profile;                       // starts profiling
//   train(model, batches);
//   std::cout << to_string(profile.summary()); // stops profiling
//   fm::save(profile, "run.json");             // a trace for Perfetto, and for `fermata report run.json`
//   fm::report("run.html", profile);           // a report as one page
//
// FERMATA_PROFILE=FILE profiles a whole process, and writes the trace when it ends; a report if the name ends in .html.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tensor.h"

namespace fermata {

/// All runs of one plan step, or of one call that ran outside a plan.
struct ProfileStep {
  std::string name, detail;  // "matmul", "matmul [64, 128] [128, 256] -> [64, 256]"
  Location where;
  bool is_kernel = false;  // compiled code; otherwise a function or library call
  std::uint64_t runs = 0;
  double us = 0;                     // of all runs; by the device's clock if it has one
  double bytes = 0, operations = 0;  // bytes moved and operations done per run; 0 if unknown
  double limit_us = 0;               // lower bound for all runs on this machine; 0 if unknown
};

/// A suggestion for saving time.
struct ProfileAdvice {
  std::string text;
  Location where;
  double us = 0;  // the current cost
};

struct ProfileSummary {
  double total_us = 0;
  // Of the threads that make calls:
  double kernels_us = 0, calls_us = 0;  // inside steps
  double compiling_us = 0;              // waited for
  double syncs_us = 0;                  // looking up and binding plans, waiting for other threads
  double recording_us = 0;              // from samples
  double own_us = 0;                    // everything else: the program's own code
  double background_us = 0;             // compiling on another thread
  double device_us = 0;                 // time of steps on devices, by their own clocks, in addition to the threads
  std::uint64_t syncs = 0, replays = 0, plan_misses = 0, plans_compiled = 0, recorded_calls = 0;
  std::uint64_t events = 0, dropped = 0;  // beyond a million in a thread, events are dropped
  std::uint64_t peak_bytes = 0;           // of memory in use, sampled at syncs and large allocations
  std::vector<ProfileStep> steps;         // most expensive first
  std::vector<ProfileAdvice> advice;      // likewise
};
std::string to_string(const ProfileSummary& summary);

struct ProfileData;

/// Collects the events of all threads from construction until stop(); functions that read a profile stop it. Profiles
/// may nest and overlap.
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void stop();
  /// The first call in a process measures the limits of the machine, which takes about a tenth of a second.
  ProfileSummary summary();
  /// The collected events, for the functions below.
  const ProfileData& data();

 private:
  std::unique_ptr<ProfileData> data_;
  bool is_running_ = true;
};

/// Writes a trace in Chrome's JSON format, which ui.perfetto.dev and `fermata report` read.
///
/// Errors   FileError FM1602 if the file cannot be written.
void save(Profile& profile, const std::string& path, Location where = Location::current());
/// Writes a self-contained HTML page: summary, graphs, passes, kernels, timeline, memory. docs/report.md describes it.
///
/// Errors   FileError FM1602 if the file cannot be written.
void report(const std::string& path, Profile& profile, Location where = Location::current());

}  // namespace fermata

// The interface between the runtime and devices other than the CPU: which step of a plan is running, for errors that
// surface later, and the recording of whole runs, to be replayed at the cost of one call.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string_view>

#include "ir/key_set.h"
#include "runtime/executable.h"

namespace fermata {

/// The step that this thread is starting: its name in the plan and its line of the program.
struct RunSite {
  std::string_view step;
  std::source_location where;
};
extern constinit thread_local const RunSite* run_site;

class RunSiteGuard {
 public:
  explicit RunSiteGuard(const RunSite& site) : before_(run_site) { run_site = &site; }
  ~RunSiteGuard() { run_site = before_; }
  RunSiteGuard(const RunSiteGuard&) = delete;
  RunSiteGuard& operator=(const RunSiteGuard&) = delete;

 private:
  const RunSite* before_;
};

/// The number of copies to the host by this thread. A run with such copies depends on values read by the host, so it
/// cannot be recorded.
extern constinit thread_local std::uint64_t device_reads;

/// A recorded run of a plan; replays with the same addresses and scalars.
class RecordedRun {
 public:
  virtual ~RecordedRun() = default;
  virtual void replay() const = 0;
};

/// Records the launches of the calling thread on a device, instead of running them.
class RunRecorder {
 public:
  virtual ~RunRecorder() = default;
  /// Returns false if recording is not possible now.
  virtual bool begin() = 0;
  /// Returns null if the launches cannot be recorded: none of them has run then.
  virtual std::unique_ptr<const RecordedRun> end() = 0;
};

/// Null if the backend has none. A recorder lives as long as the process.
RunRecorder* run_recorder(BackendKey backend);
void set_run_recorder(BackendKey backend, RunRecorder* recorder);

}  // namespace fermata

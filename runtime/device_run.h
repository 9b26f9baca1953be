// What the runtime tells devices other than the CPU: which step of a plan is running, for errors that surface later;
// and that a whole run may be recorded, to be replayed at the cost of one call.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string_view>

#include "ir/key_set.h"
#include "runtime/executable.h"

namespace fermata {

/// The step that this thread is starting: its name in the plan and the line of the program that it is for.
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

/// Copies to the host that this thread has made. A run that makes some depends on what the host read: it cannot be
/// recorded.
extern constinit thread_local std::uint64_t device_reads;

/// A run of a plan that was recorded; replays with the addresses and scalars that it had then.
class RecordedRun {
 public:
  virtual ~RecordedRun() = default;
  virtual void replay() const = 0;
};

/// Records what the calling thread launches on a device, instead of running it.
class RunRecorder {
 public:
  virtual ~RunRecorder() = default;
  /// False where nothing can be recorded now.
  virtual bool begin() = 0;
  /// Null where what was launched cannot be recorded: then none of it has run.
  virtual std::unique_ptr<const RecordedRun> end() = 0;
};

/// Null unless a backend has one. A recorder lives as long as the process.
RunRecorder* run_recorder(BackendKey backend);
void set_run_recorder(BackendKey backend, RunRecorder* recorder);

}  // namespace fermata

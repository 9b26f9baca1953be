// Runs of a bound plan recorded by a device: a run with the same addresses and scalars is replayed at the cost of one
// call.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device_run.h"
#include "runtime/function_ref.h"

namespace fermata {

class RecordedRuns {
 public:
  /// Runs `steps`, or replays their recording; records them the second time.
  void run(RunRecorder& recorder, const std::vector<void*>& addresses, const std::vector<std::uint64_t>& scalars,
           FunctionRef<void()> steps);
  void clear() { recordings_.clear(); }

 private:
  struct Recording {
    std::vector<void*> addresses;
    std::vector<std::uint64_t> scalars;
    unsigned sights = 0;
    bool reads = false;  // a step copies to the host, so it cannot be recorded
    std::unique_ptr<const RecordedRun> run;
  };
  std::vector<Recording> recordings_;  // most recently used first
};

}  // namespace fermata

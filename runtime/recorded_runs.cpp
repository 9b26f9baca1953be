// See recorded_runs.h.
#include "runtime/recorded_runs.h"

#include <algorithm>

namespace fermata {

void RecordedRuns::run(RunRecorder& recorder, const std::vector<void*>& addresses,
                       const std::vector<std::uint64_t>& scalars, FunctionRef<void()> steps) {
  constexpr std::size_t kMostRecordings = 4;
  auto known = std::ranges::find_if(
      recordings_, [&](const Recording& r) { return r.addresses == addresses && r.scalars == scalars; });
  if (known == recordings_.end()) {
    if (recordings_.size() == kMostRecordings) recordings_.pop_back();
    recordings_.push_back({addresses, scalars, 0, false, nullptr});
    known = recordings_.end() - 1;
  }
  std::rotate(recordings_.begin(), known, known + 1);
  Recording& mine = recordings_.front();
  if (mine.run == nullptr && ++mine.sights == 2 && !mine.reads && recorder.begin()) {
    try {
      steps();
    } catch (...) {
      static_cast<void>(recorder.end());
      throw;
    }
    mine.run = recorder.end();
  }
  if (mine.run != nullptr) return mine.run->replay();
  const std::uint64_t before = device_reads;
  steps();
  recordings_.front().reads = device_reads != before;
}

}  // namespace fermata

// See WithoutTransfers in fermata/mesh.h.
#include "fermata/mesh.h"

#include <cstdint>

#include "runtime/events.h"
#include "runtime/transfers.h"

namespace fermata::distributed {

struct WithoutTransfers::Times {
  SkippedTransfers skipped;
  SkippedTransfers* outer = skipped_transfers;
  std::int64_t begin = event_clock();
};

WithoutTransfers::WithoutTransfers() : times_(std::make_unique<Times>()) { skipped_transfers = &times_->skipped; }
WithoutTransfers::~WithoutTransfers() { skipped_transfers = times_->outer; }

std::vector<double> WithoutTransfers::take_times() {
  std::vector<double> seconds;
  times_->skipped.ends.push_back(event_clock());
  for (const std::int64_t end : times_->skipped.ends) {
    seconds.push_back(static_cast<double>(end - times_->begin) / 1e9);
    times_->begin = end;
  }
  times_->skipped.ends.clear();
  return seconds;
}

}  // namespace fermata::distributed

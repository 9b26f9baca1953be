// The transfers of collectives, which a thread may skip to measure what lies between them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/collectives.h"

namespace fermata {

/// While this is set, calls of this thread exchange nothing, and their results consist of elements of this rank
/// (distributed::WithoutTransfers).
struct SkippedTransfers {
  std::vector<std::int64_t> ends;  // when calls were waited for: event_clock()
};
extern constinit thread_local SkippedTransfers* skipped_transfers;

/// Backends start calls in host memory with these.
std::unique_ptr<StartedTransfer> start_transfer(const RankGroup& group, const CollectiveCall& call);
void run_transfer(const RankGroup& group, const CollectiveCall& call);

}  // namespace fermata

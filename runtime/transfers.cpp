// See transfers.h.
#include "runtime/transfers.h"

#include <cstddef>
#include <cstring>

#include "runtime/events.h"

namespace fermata {
namespace {

/// It ends where it is waited for.
class SkippedTransfer final : public StartedTransfer {
 public:
  explicit SkippedTransfer(const Transport& transport) : transport_(transport) {}
  bool progress() override { return false; }
  void wait() override {
    if (skipped_transfers != nullptr) skipped_transfers->ends.push_back(event_clock());
    transport_.yield();
  }

 private:
  const Transport& transport_;
};

void take_own_elements(const CollectiveCall& call, std::int64_t ranks) {
  const std::size_t bytes = static_cast<std::size_t>(call.count) * byte_size(call.dtype);
  if (bytes == 0 || call.to == nullptr || call.from == call.to) return;
  auto* const to = static_cast<std::byte*>(call.to);
  const bool gives_all = call.kind == CollectiveKind::all_gather || call.kind == CollectiveKind::gather;
  if (call.from == nullptr)
    std::memset(to, 0, bytes);
  else if (call.kind == CollectiveKind::all_to_all)
    std::memcpy(to, call.from, bytes * static_cast<std::size_t>(ranks));
  else
    for (std::int64_t block = 0; block < (gives_all ? ranks : 1); ++block)
      std::memcpy(to + static_cast<std::size_t>(block) * bytes, call.from, bytes);
}

}  // namespace

constinit thread_local SkippedTransfers* skipped_transfers = nullptr;

std::unique_ptr<StartedTransfer> start_transfer(const RankGroup& group, const CollectiveCall& call) {
  if (skipped_transfers == nullptr) [[likely]]
    return group.transport->start(call);
  take_own_elements(call, group.size());
  return std::make_unique<SkippedTransfer>(*group.transport);
}

void run_transfer(const RankGroup& group, const CollectiveCall& call) {
  if (skipped_transfers == nullptr) [[likely]]
    return group.transport->run(call);
  start_transfer(group, call)->wait();
}

}  // namespace fermata

// See collectives.h.
#include "runtime/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "ir/fork.h"
#include "ir/keep_forever.h"

namespace fermata {
namespace {

struct Groups {
  ForkSafeMutex mutex;
  std::deque<RankGroup> all;  // their addresses stay
};
Groups& groups() {
  static Groups& all = *keep_forever<Groups>();
  return all;
}

/// There is nothing to wait for.
class Ended final : public StartedTransfer {
 public:
  bool progress() override { return true; }
  void wait() override {}
};

/// Blocks are those of this rank: all that there is to do is a copy.
class TransportOfOne final : public Transport {
 public:
  std::unique_ptr<StartedTransfer> start(const CollectiveCall& call) override {
    run(call);
    return std::make_unique<Ended>();
  }
  void run(const CollectiveCall& call) override {
    const std::size_t bytes = static_cast<std::size_t>(call.count) * byte_size(call.dtype);
    if (call.kind == CollectiveKind::send) {
      const auto* const from = static_cast<const std::byte*>(call.from);
      sent_.push_back({call.tag, {from, from + bytes}});
      return;
    }
    if (call.kind == CollectiveKind::receive) return receive(call, bytes);
    if (call.kind == CollectiveKind::permute && call.pairs.empty()) {
      if (bytes != 0) std::memset(call.to, 0, bytes);
      return;
    }
    if (bytes != 0 && call.from != call.to && call.to != nullptr) std::memcpy(call.to, call.from, bytes);
  }
  Part split(std::int64_t, std::int64_t, std::source_location) override { return {transport_of_one(), {0}}; }
  std::string_view name() const override { return "one rank"; }

 private:
  struct Sent {
    std::int64_t tag;
    std::vector<std::byte> bytes;
  };
  void receive(const CollectiveCall& call, std::size_t bytes);

  std::vector<Sent> sent_;  // to itself, and not received yet
};

void TransportOfOne::receive(const CollectiveCall& call, std::size_t bytes) {
  const auto found =
      std::ranges::find_if(sent_, [&](const Sent& s) { return s.tag == call.tag && s.bytes.size() == bytes; });
  if (found == sent_.end())
    throw CollectiveError(7005, format_error(7005, "CollectiveError",
                                             fmt::format("{}: this rank has sent no message of {} bytes with tag {}",
                                                         call.name, bytes, call.tag),
                                             {}, call.where));
  if (bytes != 0) std::memcpy(call.to, found->bytes.data(), bytes);
  sent_.erase(found);
}

}  // namespace

std::unique_ptr<Transport> transport_of_one() { return std::make_unique<TransportOfOne>(); }

const RankGroup& add_group(std::int64_t rank, std::vector<std::int64_t> ranks, std::unique_ptr<Transport> transport,
                           std::int64_t local_rank) {
  const std::lock_guard lock(groups().mutex);
  RankGroup& group = groups().all.emplace_back();
  group.number = std::ssize(groups().all) - 1, group.rank = rank, group.local_rank = local_rank;
  group.ranks = std::move(ranks), group.transport = std::move(transport);
  return group;
}

const RankGroup* find_group(std::int64_t number) {
  const std::lock_guard lock(groups().mutex);
  if (number < 0 || number >= std::ssize(groups().all)) return nullptr;
  return &groups().all[static_cast<std::size_t>(number)];
}

}  // namespace fermata

// A group of ranks that communicate through MPI, or through shared memory if all are on one machine: then MPI only
// sends, receives and creates groups.
//
// All MPI calls are non-blocking and polled until they complete: a wait has a timeout
// (FERMATA_COLLECTIVE_TIMEOUT), ends early if a rank is gone, and yields the processor if ranks share it.
// Blocking MPI calls do not match non-blocking ones of other ranks, so there are no blocking ones.
//
// A wait makes progress on all calls that its thread has started: another rank may need one of those first.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/distributed/mpi/shared_exchange.h"
#include "runtime/collectives.h"
#include "runtime/function_ref.h"

namespace fermata::distributed {

class MpiTransport final : public Transport {
 public:
  /// Takes ownership of the communicator, and duplicates it. `ranks` are those of the world.
  /// All ranks of the group call it.
  MpiTransport(MPI_Comm comm, std::vector<std::int64_t> ranks, int status_group, std::source_location where);

  std::unique_ptr<StartedTransfer> start(const CollectiveCall& call) override;
  void run(const CollectiveCall& call) override;
  Part split(std::int64_t color, std::int64_t key, std::source_location where) override;
  std::string_view name() const override { return shared_ == nullptr ? "MPI" : "shared memory and MPI"; }
  bool spans_processes() const override { return true; }
  bool computes_means() const override { return shared_ != nullptr; }
  void expect(const CollectiveCall& call) override { begin(call); }
  void yield() const override;

  /// What a wait needs to know of the group and of the call.
  struct Waiting {
    const MpiTransport& transport;
    std::uint64_t number;   // of the call in the group
    std::string_view what;  // "all_reduce"; a static string
    std::source_location where;
    std::int64_t peer = -1;  // of send and receive
  };
  /// Until all requests have completed. CollectiveError FM7006 if other ranks do not arrive.
  void wait(std::vector<MPI_Request>& requests, const Waiting& waiting) const;
  /// Until `has_ended()`, which is polled.
  void wait_until(FunctionRef<bool()> has_ended, const Waiting& waiting) const;

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return static_cast<std::int64_t>(ranks_.size()); }

 private:
  /// Returns the number of the call, and publishes it to other ranks.
  std::uint64_t begin(const CollectiveCall& call);
  void require_usable(const CollectiveCall& call) const;
  void compare_with_other_ranks(const CollectiveCall& call, std::uint64_t number);
  void send(const CollectiveCall& call);
  bool is_missing(std::size_t rank, const Waiting& waiting) const;
  bool will_not_come(std::size_t rank, const Waiting& waiting) const;
  std::string who_is_missing(const Waiting& waiting) const;
  /// CollectiveError FM7006.
  [[noreturn]] void fail(const std::string& what, const Waiting& waiting) const;

  MPI_Comm comm_, pairs_, messages_, control_;  // collectives; permute; send and receive; checks and groups
  std::vector<std::int64_t> ranks_;             // of the world
  std::int64_t rank_ = 0;
  int status_group_;
  std::uint64_t calls_ = 0;
  std::unique_ptr<SharedExchange> shared_;  // null if ranks are on several machines

  /// Messages that have not been received yet. A send returns immediately: ranks may send to each other, then receive.
  struct Outgoing {
    std::vector<std::byte> elements;
    std::vector<MPI_Request> requests;
  };
  std::list<Outgoing> outgoing_;
};

/// Whether there are more ranks on this machine than processors for them: then a wait yields immediately.
void set_ranks_share_processors(bool share);

}  // namespace fermata::distributed

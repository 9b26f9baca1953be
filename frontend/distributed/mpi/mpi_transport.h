// A group of ranks that talk through MPI, and through memory where all of them are on one machine: then MPI only sends
// and receives, and makes groups.
//
// All calls of MPI are non-blocking ones that are tested until they have ended: a wait has a limit
// (FERMATA_COLLECTIVE_TIMEOUT), ends early where a rank is gone, and gives the processor away where ranks share it.
// Blocking calls of MPI do not match non-blocking ones of other ranks, so there are none, whatever a call is made for.
//
// A wait for one call goes on with all that its thread has started: another rank may need one of those first.
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
  /// Takes the communicator over, and makes others of it. `ranks` are those of the world. Every rank of the group calls
  /// it.
  MpiTransport(MPI_Comm comm, std::vector<std::int64_t> ranks, int status_group, std::source_location where);

  std::unique_ptr<StartedTransfer> start(const CollectiveCall& call) override;
  void run(const CollectiveCall& call) override;
  Part split(std::int64_t color, std::int64_t key, std::source_location where) override;
  std::string_view name() const override { return shared_ == nullptr ? "MPI" : "shared memory and MPI"; }
  bool spans_processes() const override { return true; }
  void expect(const CollectiveCall& call) override { begin(call); }

  /// What a wait needs to know of the group and of the call.
  struct Waiting {
    const MpiTransport& transport;
    std::uint64_t number;   // of the call in the group
    std::string_view what;  // "all_reduce"; of a name that stays
    std::source_location where;
    std::int64_t peer = -1;  // of send and receive
  };
  /// Until all requests have ended. CollectiveError FM7006 where other ranks do not come.
  void wait(std::vector<MPI_Request>& requests, const Waiting& waiting) const;
  /// Until `has_ended()`, which is asked again and again.
  void wait_until(FunctionRef<bool()> has_ended, const Waiting& waiting) const;

  std::int64_t rank() const { return rank_; }
  std::int64_t size() const { return static_cast<std::int64_t>(ranks_.size()); }

 private:
  /// Gives the number of the call, which other ranks have been told.
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
  std::unique_ptr<SharedExchange> shared_;  // null where ranks are on several machines

  /// What has been sent and not taken yet. A send ends at once: ranks may send to each other before they receive.
  struct Outgoing {
    std::vector<std::byte> elements;
    std::vector<MPI_Request> requests;
  };
  std::list<Outgoing> outgoing_;
};

/// Whether there are more ranks on this machine than processors for them: then a wait gives the processor away at once.
void set_ranks_share_processors(bool share);

}  // namespace fermata::distributed

// A group of ranks that talk through MPI.
//
// All calls are non-blocking ones that are tested until they have ended: a wait has a limit
// (FERMATA_COLLECTIVE_TIMEOUT), ends early where a rank is gone, and gives the processor away where ranks share it.
// Blocking calls of MPI do not match non-blocking ones of other ranks, so there are none, whatever a call is made for.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "runtime/collectives.h"

namespace fermata::distributed {

class MpiTransport final : public Transport {
 public:
  /// Takes the communicator over, and makes others of it. `ranks` are those of the world. Every rank of the group calls
  /// it.
  MpiTransport(MPI_Comm comm, std::vector<std::int64_t> ranks, int status_group, std::source_location where);

  std::unique_ptr<StartedTransfer> start(const CollectiveCall& call) override;
  Part split(std::int64_t color, std::int64_t key, std::source_location where) override;
  std::string_view name() const override { return "MPI"; }
  bool spans_processes() const override { return true; }
  void expect(const CollectiveCall& call) override { begin(call); }

  /// What a wait needs to know of the group and of the call.
  struct Waiting {
    const MpiTransport& transport;
    std::uint64_t number;  // of the call in the group
    std::string what;      // "all_reduce"
    std::source_location where;
    std::int64_t peer = -1;  // of send and receive
  };
  /// Until all requests have ended. CollectiveError FM7006 where other ranks do not come.
  void wait(std::vector<MPI_Request>& requests, const Waiting& waiting) const;

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

  MPI_Comm comm_, pairs_, messages_, control_;  // collectives; permute; send and receive; checks and groups
  std::vector<std::int64_t> ranks_;             // of the world
  std::int64_t rank_ = 0;
  int status_group_;
  std::uint64_t calls_ = 0;

  /// What has been sent and not taken yet. A send ends at once: ranks may send to each other before they receive.
  struct Outgoing {
    std::vector<std::byte> elements;
    std::vector<MPI_Request> requests;
  };
  std::list<Outgoing> outgoing_;
};

/// From now on no call is made: something has gone wrong that the ranks cannot agree about.
void give_up_on_mpi(std::string reason);
/// Empty while all is well.
std::string why_given_up();

}  // namespace fermata::distributed

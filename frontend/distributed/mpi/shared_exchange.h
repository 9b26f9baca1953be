// Collectives of ranks on one machine through shared memory: a rank copies its operand to where the others can read
// it, and each rank computes its own result from there. No rank waits for a reply, so a transfer makes progress while
// the ranks compute; a rank works on it when it starts the transfer, and when it waits for it.
//
// A call takes a number of rounds (shared_area.h). Each round moves a part of the elements, so that they stay
// in the caches. all_reduce of many elements on three or more ranks takes two rounds per part: each rank reduces a
// share of it, then gathers the shares of the others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "frontend/distributed/mpi/shared_area.h"
#include "runtime/collectives.h"

namespace fermata::distributed {

class SharedTransfer;

/// The calls of a group, from one thread at a time.
class SharedExchange {
 public:
  SharedExchange(std::unique_ptr<SharedArea> area, std::int64_t largest_count)
      : area_(std::move(area)), largest_count_(largest_count) {}

  /// Makes progress on all pending transfers: posts in the order of the rounds, and computes available results.
  void advance();

 private:
  friend class SharedTransfer;
  void add(SharedTransfer& transfer);
  void remove(SharedTransfer& transfer);
  void publish_done();

  std::unique_ptr<SharedArea> area_;
  std::int64_t largest_count_;                 // elements per rank and round; smaller in tests
  std::uint64_t rounds_ = 0;                   // used by calls so far
  std::vector<SharedTransfer*> on_their_way_;  // in the order of their rounds
};

/// One pending call.
class SharedTransfer {
 public:
  /// Posts at most `ahead` rounds before it computes the results of the first one.
  SharedTransfer(SharedExchange& exchange, const CollectiveCall& call, std::int64_t ahead);
  ~SharedTransfer();
  SharedTransfer(const SharedTransfer&) = delete;
  SharedTransfer& operator=(const SharedTransfer&) = delete;

  /// Makes all progress that is possible now. Returns whether the call is complete.
  bool progress() {
    if (!has_ended()) exchange_.advance();
    return has_ended();
  }
  bool has_ended() const { return completed_ == rounds_; }
  /// Of the pending calls of the group.
  bool is_first() const { return !exchange_.on_their_way_.empty() && exchange_.on_their_way_.front() == this; }

 private:
  friend class SharedExchange;
  enum class Stage : std::uint8_t { whole, reduce_share, gather_shares };
  struct Round {
    Stage stage;
    std::int64_t at, count;  // of the elements of a block
  };
  Round round(std::int64_t number) const;
  std::uint64_t number_of(std::int64_t round) const { return first_ + static_cast<std::uint64_t>(round); }
  bool is_posted() const { return posted_ == rounds_; }
  /// The first and the last element of a rank's share of a round.
  std::int64_t share(const Round& r, std::size_t rank) const;

  bool gives() const;
  bool reads(std::size_t rank) const;
  bool try_to_post();
  void copy_into_post(const Round& r, std::byte* post) const;
  bool try_to_complete();
  void complete(const Round& r);
  void reduce(std::int64_t in_post, std::int64_t in_from, std::int64_t in_to, std::int64_t count);
  void require_same_call(std::size_t rank, const SharedArea::Post& post) const;
  std::uint64_t signature() const;

  const std::byte* from(std::int64_t element) const {
    return static_cast<const std::byte*>(call_.from) + element * bytes_;
  }
  std::byte* to(std::int64_t element) const { return static_cast<std::byte*>(call_.to) + element * bytes_; }
  const std::byte* posted(std::size_t rank, std::int64_t element) const { return seen_[rank] + element * bytes_; }

  SharedExchange& exchange_;
  const CollectiveCall call_;
  const std::int64_t bytes_;  // of an element
  std::int64_t own_, ranks_;
  std::int64_t source_ = -1, is_source_ = 0;  // of permute
  std::int64_t part_ = 0, rounds_ = 1;        // elements of a block that a round moves
  bool in_shares_ = false;
  std::int64_t ahead_, posted_ = 0, completed_ = 0;
  std::uint64_t first_;                 // the number of the first round
  std::vector<const std::byte*> seen_;  // by rank: its post for the next round to complete
  std::size_t arrived_ = 0;             // ranks whose posts have been checked
};

}  // namespace fermata::distributed

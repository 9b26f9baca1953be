// See shared_exchange.h.
#include "frontend/distributed/mpi/shared_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "frontend/distributed/mpi/mpi_calls.h"
#include "frontend/distributed/mpi/reduce_elements.h"
#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata::distributed {
namespace {

/// Bytes that a rank posts in a round: enough to amortize the overhead of a round, and few enough that the posts of
/// two ranks are still in their caches when they are read.
constexpr std::int64_t kRoundBytes = std::int64_t{256} << 10;
/// From here on three or more ranks reduce shares: reading n blocks costs more than a second round.
constexpr std::int64_t kSharesFromBytes = std::int64_t{32} << 10;

/// The operand has one block for each rank.
bool gives_blocks(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all ||
         kind == CollectiveKind::scatter;
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  constexpr double kNsPerByte = 0.1;
  if (bytes <= 0) return;
  parallel_for(
      0, bytes, kNsPerByte,
      [&](std::int64_t b, std::int64_t e) { std::memcpy(to + b, from + b, static_cast<std::size_t>(e - b)); }, 64);
}

/// Decodes SharedTransfer::signature().
std::string description(std::uint64_t signature, std::int64_t count) {
  constexpr std::string_view kKinds[] = {"all_reduce", "reduce",    "all_gather", "reduce_scatter",
                                         "all_to_all", "broadcast", "scatter",    "gather",
                                         "permute",    "send",      "receive",    "barrier"};
  const auto byte = [&](int at) { return (signature >> at) & 0xff; };
  const auto kind = static_cast<CollectiveKind>(byte(0));
  std::string text(kKinds[byte(0)]);
  if (kind == CollectiveKind::barrier) return text;
  text += fmt::format(" of {} {}", count, name(static_cast<DType>(byte(8))));
  if (kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter)
    text += fmt::format(", {}", name(static_cast<CollectiveReduction>(byte(16))));
  if (const std::uint64_t root = signature >> 32; root != 0) text += fmt::format(", root {}", root - 1);
  return text;
}

}  // namespace

// ---- The calls of a group

void SharedExchange::add(SharedTransfer& transfer) {
  transfer.first_ = rounds_ + 1;
  rounds_ += static_cast<std::uint64_t>(transfer.rounds_);
  on_their_way_.push_back(&transfer);
}

void SharedExchange::remove(SharedTransfer& transfer) { std::erase(on_their_way_, &transfer); }

void SharedExchange::publish_done() {
  std::uint64_t done = rounds_;
  for (const SharedTransfer* const t : on_their_way_)
    if (!t->has_ended()) {
      done = t->number_of(t->completed_) - 1;
      break;
    }
  area_->set_done(done);
}

void SharedExchange::advance() {
  // A later call posts nothing until earlier ones have posted everything: otherwise it could use the memory that the
  // earlier one, and with it all ranks, are waiting for.
  bool may_post = true;
  for (std::size_t i = 0; i < on_their_way_.size(); ++i) {
    SharedTransfer& t = *on_their_way_[i];
    for (bool moves = true; moves;) {
      moves = false;
      while (may_post && t.try_to_post()) moves = true;
      while (t.try_to_complete()) moves = true;
    }
    may_post = may_post && t.is_posted();
  }
  std::erase_if(on_their_way_, [](const SharedTransfer* t) { return t->has_ended(); });
}

// ---- One call

SharedTransfer::SharedTransfer(SharedExchange& exchange, const CollectiveCall& call, std::int64_t ahead)
    : exchange_(exchange),
      call_(call),
      bytes_(static_cast<std::int64_t>(byte_size(call.dtype))),
      own_(static_cast<std::int64_t>(exchange.area_->rank())),
      ranks_(static_cast<std::int64_t>(exchange.area_->ranks())),
      ahead_(ahead),
      seen_(exchange.area_->ranks()) {
  if (call.kind == CollectiveKind::permute)
    for (std::size_t i = 0; i + 1 < call.pairs.size(); i += 2) {
      if (call.pairs[i + 1] == own_) source_ = call.pairs[i];
      if (call.pairs[i] == own_) is_source_ = 1;
    }
  if (call.kind != CollectiveKind::barrier) {
    const std::int64_t blocks = gives_blocks(call.kind) ? ranks_ : 1;
    part_ = std::clamp<std::int64_t>(kRoundBytes / (bytes_ * blocks), 1, exchange.largest_count_);
    rounds_ = std::max<std::int64_t>(1, (call.count + part_ - 1) / part_);
    in_shares_ = call.kind == CollectiveKind::all_reduce && ranks_ > 2 && call.count * bytes_ >= kSharesFromBytes;
    if (in_shares_) rounds_ *= 2;
  }
  exchange_.add(*this);
}

SharedTransfer::~SharedTransfer() { exchange_.remove(*this); }

/// Shares of part p + 1 are reduced before those of part p are gathered, so that no rank waits between the two: the
/// order is reduce 0, reduce 1, gather 0, reduce 2, gather 1, ..., gather of the last.
SharedTransfer::Round SharedTransfer::round(std::int64_t number) const {
  Stage stage = Stage::whole;
  std::int64_t part = number;
  if (in_shares_) {
    const bool gathers = number == rounds_ - 1 || (number != 0 && number % 2 == 0);
    stage = gathers ? Stage::gather_shares : Stage::reduce_share;
    part = number == rounds_ - 1 ? rounds_ / 2 - 1 : gathers ? number / 2 - 1 : (number + 1) / 2;
  }
  return {stage, part * part_, std::min(part_, call_.count - part * part_)};
}

std::int64_t SharedTransfer::share(const Round& r, std::size_t rank) const {
  return r.count * static_cast<std::int64_t>(rank) / ranks_;
}

bool SharedTransfer::gives() const {
  switch (call_.kind) {
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter: return own_ == call_.peer;
    case CollectiveKind::reduce:
    case CollectiveKind::gather: return own_ != call_.peer;
    case CollectiveKind::permute: return is_source_ != 0;
    default: return true;
  }
}

bool SharedTransfer::reads(std::size_t rank) const {
  const auto r = static_cast<std::int64_t>(rank);
  switch (call_.kind) {
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter: return r == call_.peer && r != own_;
    case CollectiveKind::reduce:
    case CollectiveKind::gather: return own_ == call_.peer && r != own_;
    case CollectiveKind::permute: return r == source_;
    default: return r != own_;
  }
}

std::uint64_t SharedTransfer::signature() const {
  const auto byte = [](auto value, int at) { return static_cast<std::uint64_t>(value) << at; };
  const bool has_root = call_.kind == CollectiveKind::broadcast || call_.kind == CollectiveKind::scatter ||
                        call_.kind == CollectiveKind::reduce || call_.kind == CollectiveKind::gather;
  return byte(call_.kind, 0) | byte(call_.dtype, 8) | byte(call_.reduction, 16) |
         byte(has_root ? call_.peer + 1 : 0, 32);
}

bool SharedTransfer::try_to_post() {
  if (is_posted() || posted_ - completed_ >= ahead_) return false;
  const Round r = round(posted_);
  if (r.stage == Stage::gather_shares) {
    const std::int64_t part = r.at / part_, reduced = part == 0 ? 0 : 2 * part - 1;  // the round that computes it
    if (completed_ <= reduced) return false;
  }
  if (gives()) {
    const std::int64_t blocks = gives_blocks(call_.kind) ? ranks_ : 1;
    const std::uint64_t number = number_of(posted_);
    std::byte* const post = exchange_.area_->begin_post(number, static_cast<std::size_t>(r.count * blocks * bytes_));
    if (post == nullptr) return false;
    copy_into_post(r, post);
    exchange_.area_->publish(number, signature(), call_.count);
  }
  ++posted_;
  return true;
}

/// Elements are posted as they are in a block, or block after block; elements that no rank reads are skipped.
void SharedTransfer::copy_into_post(const Round& r, std::byte* post) const {
  if (call_.kind == CollectiveKind::barrier || r.count == 0) return;
  if (gives_blocks(call_.kind)) {
    for (std::int64_t block = 0; block < ranks_; ++block)
      if (block != own_)
        copy_bytes(post + block * r.count * bytes_, from(block * call_.count + r.at), r.count * bytes_);
    return;
  }
  const auto own = static_cast<std::size_t>(own_);
  const std::int64_t begin = share(r, own), end = share(r, own + 1);
  switch (r.stage) {
    case Stage::whole: return copy_bytes(post, from(r.at), r.count * bytes_);
    case Stage::reduce_share:
      copy_bytes(post, from(r.at), begin * bytes_);
      return copy_bytes(post + end * bytes_, from(r.at + end), (r.count - end) * bytes_);
    case Stage::gather_shares: return copy_bytes(post + begin * bytes_, to(r.at + begin), (end - begin) * bytes_);
  }
}

bool SharedTransfer::try_to_complete() {
  if (completed_ == posted_) return false;
  const std::uint64_t number = number_of(completed_);
  for (; arrived_ < seen_.size(); ++arrived_) {
    if (!reads(arrived_)) continue;
    const SharedArea::Post* const post = exchange_.area_->find_post(arrived_, number);
    if (post == nullptr) return false;
    require_same_call(arrived_, *post);
    seen_[arrived_] = exchange_.area_->elements(arrived_, *post);
  }
  complete(round(completed_));
  ++completed_, arrived_ = 0;
  exchange_.publish_done();
  return true;
}

void SharedTransfer::complete(const Round& r) {
  if (call_.kind == CollectiveKind::barrier || r.count == 0) return;
  const auto own = static_cast<std::size_t>(own_);
  const std::int64_t bytes = r.count * bytes_;
  const auto copy_other = [](std::byte* to, const std::byte* from, std::int64_t n) {
    if (to != from) copy_bytes(to, from, n);
  };
  switch (call_.kind) {
    case CollectiveKind::all_reduce: {
      if (r.stage == Stage::whole) return reduce(0, r.at, r.at, r.count);
      const std::int64_t begin = share(r, own), end = share(r, own + 1);
      if (r.stage == Stage::reduce_share) return reduce(begin, r.at + begin, r.at + begin, end - begin);
      for (std::size_t rank = 0; rank < seen_.size(); ++rank) {
        if (rank == own) continue;
        const std::int64_t b = share(r, rank), e = share(r, rank + 1);
        copy_bytes(to(r.at + b), posted(rank, b), (e - b) * bytes_);
      }
      return;
    }
    case CollectiveKind::reduce:
      if (own_ == call_.peer) reduce(0, r.at, r.at, r.count);
      return;
    case CollectiveKind::reduce_scatter: return reduce(own_ * r.count, own_ * call_.count + r.at, r.at, r.count);
    case CollectiveKind::gather:
      if (own_ != call_.peer) return;
      [[fallthrough]];
    case CollectiveKind::all_gather:
      for (std::size_t rank = 0; rank < seen_.size(); ++rank)
        copy_other(to(static_cast<std::int64_t>(rank) * call_.count + r.at), rank == own ? from(r.at) : seen_[rank],
                   bytes);
      return;
    case CollectiveKind::all_to_all:
      for (std::size_t rank = 0; rank < seen_.size(); ++rank) {
        const std::int64_t at = static_cast<std::int64_t>(rank) * call_.count + r.at;
        copy_other(to(at), rank == own ? from(at) : posted(rank, own_ * r.count), bytes);
      }
      return;
    case CollectiveKind::broadcast:
      return copy_other(to(r.at), own_ == call_.peer ? from(r.at) : seen_[static_cast<std::size_t>(call_.peer)], bytes);
    case CollectiveKind::scatter: {
      const bool is_root = own_ == call_.peer;
      return copy_other(
          to(r.at),
          is_root ? from(own_ * call_.count + r.at) : posted(static_cast<std::size_t>(call_.peer), own_ * r.count),
          bytes);
    }
    case CollectiveKind::permute:
      if (source_ >= 0) return copy_bytes(to(r.at), seen_[static_cast<std::size_t>(source_)], bytes);
      std::memset(to(r.at), 0, static_cast<std::size_t>(bytes));
      return;
    case CollectiveKind::send:
    case CollectiveKind::receive:
    case CollectiveKind::barrier: return;
  }
}

/// The operand of this rank is read in place.
void SharedTransfer::reduce(std::int64_t in_post, std::int64_t in_from, std::int64_t in_to, std::int64_t count) {
  std::array<const void*, 16> few;
  std::vector<const void*> many;
  std::span<const void*> sources(few.data(), std::min(seen_.size(), few.size()));
  if (seen_.size() > few.size()) many.resize(seen_.size()), sources = many;
  for (std::size_t rank = 0; rank < seen_.size(); ++rank)
    sources[rank] = static_cast<std::int64_t>(rank) == own_ ? from(in_from) : posted(rank, in_post);
  reduce_elements(call_.dtype, call_.reduction, sources, to(in_to), count);
}

void SharedTransfer::require_same_call(std::size_t rank, const SharedArea::Post& post) const {
  const std::uint64_t own = signature();
  if (post.signature == own && post.count == call_.count) return;
  give_up_on_mpi(fmt::format("{}: rank {} makes another call", call_.name, rank));
  const std::string here = fmt::format("rank {}", own_), there = fmt::format("rank {}", rank);
  const std::string call = description(own, call_.count), other = description(post.signature, post.count);
  throw CollectiveError(7007,
                        format_error(7007, "CollectiveError",
                                     fmt::format("{}: ranks {} and {} make different calls", call_.name, own_, rank),
                                     {{here, call, ""}, {there, other, ""}}, call_.where,
                                     "FERMATA_CHECK_COLLECTIVES=1 shows both lines, before anything is sent"));
}

}  // namespace fermata::distributed

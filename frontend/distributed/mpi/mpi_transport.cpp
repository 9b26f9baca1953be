// See mpi_transport.h.
#include "frontend/distributed/mpi/mpi_transport.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "frontend/distributed/mpi/mpi_calls.h"
#include "frontend/distributed/mpi/mpi_requests.h"
#include "frontend/distributed/mpi/rank_status.h"
#include "ir/error.h"
#include "ir/fork.h"
#include "runtime/collective_timeout.h"
#include "runtime/environment.h"

namespace fermata::distributed {
namespace {

using Clock = std::chrono::steady_clock;

bool is_of_two(CollectiveKind kind) { return kind == CollectiveKind::send || kind == CollectiveKind::receive; }

bool checks_collectives() {
  static const bool checks = environment_number("FERMATA_CHECK_COLLECTIVES", 0) != 0;
  return checks;
}

/// FERMATA_SHARED_MEMORY=0: ranks on one machine communicate like ranks on several.
bool shares_memory() {
  static const bool shares = environment_number("FERMATA_SHARED_MEMORY", 1) != 0;
  return shares;
}

std::atomic<bool> ranks_share_processors = false;

/// Between two reads of memory that another processor writes.
void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// ---- Pending transfers

/// Transfers that this thread has started and not completed.
thread_local std::vector<StartedTransfer*> of_this_thread;
/// Buffers that other ranks may not have received yet. MPI moves them while it is called.
std::atomic<std::int64_t> sends_on_their_way = 0;

class Transfer : public StartedTransfer {
 public:
  Transfer() { of_this_thread.push_back(this); }
  ~Transfer() override { std::erase(of_this_thread, this); }
};

/// Through MPI requests.
class MpiTransfer final : public Transfer {
 public:
  explicit MpiTransfer(const MpiTransport::Waiting& waiting) : waiting_(waiting) {}
  ~MpiTransfer() override {
    if (requests.empty()) return;
    try {
      wait();
    } catch (const Error&) {}  // no further calls are made: give_up_on_mpi()
  }
  bool progress() override {
    if (requests.empty()) return true;
    const std::lock_guard lock(mpi_mutex());
    int ended = 0;
    require_success(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended, MPI_STATUSES_IGNORE),
                    waiting_.what, waiting_.where);
    if (ended != 0) requests.clear();
    return ended != 0;
  }
  void wait() override {
    waiting_.transport.wait(requests, waiting_);
    requests.clear();
  }

  std::vector<MPI_Request> requests;
  std::vector<std::byte> packed;

 private:
  MpiTransport::Waiting waiting_;
};

/// Rounds that an immediately awaited call posts before it computes the results of the first one. A call that
/// overlaps with others posts as many as fit: the other ranks can then continue without this one.
constexpr std::int64_t kRoundsAhead = 2, kAllRounds = std::numeric_limits<std::int64_t>::max();

/// Through shared memory.
class MemoryTransfer final : public Transfer {
 public:
  MemoryTransfer(SharedExchange& exchange, const CollectiveCall& call, const MpiTransport::Waiting& waiting)
      : transfer_(exchange, call, kAllRounds), waiting_(waiting) {
    transfer_.progress();
  }
  ~MemoryTransfer() override {
    try {
      wait();
    } catch (const Error&) {}
  }
  /// The first pending transfer makes progress on all, so that polling each of them is not quadratic.
  bool progress() override { return transfer_.is_first() ? transfer_.progress() : transfer_.has_ended(); }
  void wait() override {
    if (!transfer_.has_ended() && why_given_up().empty())
      waiting_.transport.wait_until([&] { return transfer_.progress(); }, waiting_);
  }

 private:
  SharedTransfer transfer_;
  MpiTransport::Waiting waiting_;
};

void go_on_with_others() {
  for (std::size_t i = 0; i < of_this_thread.size(); ++i) of_this_thread[i]->progress();
  if (sends_on_their_way.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mpi_mutex());
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

std::atomic<bool> has_given_up = false;
ForkSafeMutex& given_up_mutex = *new ForkSafeMutex;
std::string& given_up = *new std::string;

}  // namespace

void set_ranks_share_processors(bool share) { ranks_share_processors = share; }

void give_up_on_mpi(std::string reason) {
  const std::lock_guard lock(given_up_mutex);
  if (given_up.empty()) given_up = std::move(reason);
  has_given_up = true;
  RankStatus::set_state(RankState::failed);
}

std::string why_given_up() {
  if (!has_given_up) return {};
  const std::lock_guard lock(given_up_mutex);
  return given_up;
}

std::mutex& mpi_mutex() {
  static auto* const mutex = new ForkSafeMutex;
  return *mutex;
}

void require_success(int code, std::string_view what, std::source_location where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  const std::string reason(text, static_cast<std::size_t>(std::max(length, 0)));
  give_up_on_mpi(reason);
  throw CollectiveError(
      7009, format_error(7009, "CollectiveError", fmt::format("{}: MPI reports: {}", what, reason), {}, where));
}

// ---- Calls

MpiTransport::MpiTransport(MPI_Comm comm, std::vector<std::int64_t> ranks, int status_group, std::source_location where)
    : comm_(comm), ranks_(std::move(ranks)), status_group_(status_group) {
  int rank = 0;
  require_success(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank", where);
  rank_ = rank;
  for (MPI_Comm* const other : {&pairs_, &messages_, &control_})
    require_success(MPI_Comm_dup(comm, other), "MPI_Comm_dup", where);
  for (const MPI_Comm c : {comm_, pairs_, messages_, control_}) MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
  const auto is_here = [](std::int64_t r) { return RankStatus::state(r).has_value(); };
  if (ranks_.size() < 2 || !std::ranges::all_of(ranks_, is_here)) return;
  if (auto area = SharedArea::make(comm_, shares_memory(), where))
    shared_ = std::make_unique<SharedExchange>(std::move(area), largest_count());
}

void MpiTransport::require_usable(const CollectiveCall& call) const {
  if (const std::string why = why_given_up(); !why.empty())
    throw CollectiveError(
        7008, format_error(7008, "CollectiveError",
                           fmt::format("{}: collectives are disabled because one failed: {}", call.name, why), {},
                           call.where));
}

std::uint64_t MpiTransport::begin(const CollectiveCall& call) {
  require_usable(call);
  const std::uint64_t number = is_of_two(call.kind) ? calls_ : ++calls_;
  RankStatus::begin_call(status_group_, number, call.name, call.where);
  if (checks_collectives() && !is_of_two(call.kind)) compare_with_other_ranks(call, number);
  return number;
}

std::unique_ptr<StartedTransfer> MpiTransport::start(const CollectiveCall& call) {
  const std::uint64_t number = begin(call);
  const bool is_of_pairs = call.kind == CollectiveKind::permute;
  const Waiting waiting{*this, number, call.name, call.where, is_of_two(call.kind) ? call.peer : -1};
  if (shared_ != nullptr && !is_of_two(call.kind)) return std::make_unique<MemoryTransfer>(*shared_, call, waiting);
  auto transfer = std::make_unique<MpiTransfer>(waiting);
  if (call.kind == CollectiveKind::send) {
    send(call);
    return transfer;
  }
  transfer->requests.reserve(8);
  const std::lock_guard lock(mpi_mutex());
  transfer->packed = start_requests(call,
                                    is_of_two(call.kind) ? messages_
                                    : is_of_pairs        ? pairs_
                                                         : comm_,
                                    size(), rank_, transfer->requests);
  return transfer;
}

void MpiTransport::run(const CollectiveCall& call) {
  if (shared_ == nullptr || is_of_two(call.kind)) return start(call)->wait();
  const std::uint64_t number = begin(call);
  SharedTransfer transfer(*shared_, call, kRoundsAhead);
  if (!transfer.progress()) wait_until([&] { return transfer.progress(); }, {*this, number, call.name, call.where});
}

void MpiTransport::send(const CollectiveCall& call) {
  const std::lock_guard lock(mpi_mutex());
  std::erase_if(outgoing_, [&](Outgoing& sent) {
    int ended = 0;
    require_success(
        MPI_Testall(static_cast<int>(sent.requests.size()), sent.requests.data(), &ended, MPI_STATUSES_IGNORE),
        call.name, call.where);
    if (ended != 0) --sends_on_their_way;
    return ended != 0;
  });
  Outgoing& sent = outgoing_.emplace_back();
  const auto* const elements = static_cast<const std::byte*>(call.from);
  sent.elements.assign(elements, elements + static_cast<std::size_t>(call.count) * byte_size(call.dtype));
  CollectiveCall copy = call;
  copy.from = sent.elements.data();
  start_requests(copy, messages_, size(), rank_, sent.requests);
  ++sends_on_their_way;
}

// ---- Waiting

bool MpiTransport::is_missing(std::size_t rank, const Waiting& waiting) const {
  if (static_cast<std::int64_t>(rank) == rank_) return false;
  if (waiting.peer >= 0) return static_cast<std::int64_t>(rank) == waiting.peer;
  const auto calls = RankStatus::calls(ranks_[rank], status_group_);
  return !calls || *calls < waiting.number;
}

bool MpiTransport::will_not_come(std::size_t rank, const Waiting& waiting) const {
  const std::int64_t of_world = ranks_[rank];
  if (static_cast<std::int64_t>(rank) == rank_) return false;
  if (waiting.peer < 0 && RankStatus::is_lost(of_world)) return true;  // also in the middle of the call
  return is_missing(rank, waiting) &&
         (RankStatus::state(of_world) == RankState::ended || RankStatus::is_lost(of_world));
}

/// The ranks that have not arrived, with their state and last call.
std::string MpiTransport::who_is_missing(const Waiting& waiting) const {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!is_missing(i, waiting) && !will_not_come(i, waiting)) continue;
    const std::int64_t rank = ranks_[i];
    const auto state = RankStatus::state(rank);
    if (!state) {
      missing.push_back(fmt::format("rank {} is on another machine and has not arrived", i));
      continue;
    }
    const std::string last = RankStatus::last_call(rank);
    missing.push_back(fmt::format("rank {} {}; {}", i,
                                  RankStatus::is_gone(rank)     ? "has died"
                                  : *state == RankState::ended  ? "has exited"
                                  : *state == RankState::failed ? "has failed"
                                                                : "is running",
                                  last.empty() ? "it has made no call" : "its last call is " + last));
  }
  return missing.empty() ? "all ranks have arrived" : fmt::format("{}", fmt::join(missing, ", "));
}

void MpiTransport::wait(std::vector<MPI_Request>& requests, const Waiting& waiting) const {
  wait_until(
      [&] {
        const std::lock_guard lock(mpi_mutex());
        int ended = 0;
        require_success(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended, MPI_STATUSES_IGNORE),
                        waiting.what, waiting.where);
        return ended != 0;
      },
      waiting);
  // Data from a rank that has failed meanwhile may have been read from freed memory.
  if (RankStatus::has_failures()) fail(fmt::format("another rank has failed ({})", who_is_missing(waiting)), waiting);
}

void MpiTransport::fail(const std::string& what, const Waiting& waiting) const {
  give_up_on_mpi(what);
  throw CollectiveError(
      7006, format_error(7006, "CollectiveError", fmt::format("{}: {}", waiting.what, what), {}, waiting.where));
}

void MpiTransport::yield() const {
  if (ranks_share_processors) sched_yield();
}

void MpiTransport::wait_until(FunctionRef<bool()> has_ended, const Waiting& waiting) const {
  // A poll may take long: MPI yields the processor as well.
  const int tests_without_clock = ranks_share_processors ? 20 : 200;
  // After yielding to another program, this thread returns after a time slice of milliseconds. Not yielding takes the
  // processor from a rank that shares it.
  const auto spin = std::chrono::microseconds(ranks_share_processors ? 0 : 500);
  constexpr auto kBetweenLooks = std::chrono::milliseconds(1), kPatience = std::chrono::milliseconds(5);
  // How long, and for how many polls, messages of a lost rank may still arrive.
  constexpr auto kGrace = std::chrono::milliseconds(200);
  constexpr int kGraceTests = 100, kTestsBetweenOthers = 16;
  if (const std::string why = why_given_up(); !why.empty()) fail(why, waiting);
  Clock::time_point begin, looked, gone_since;
  std::optional<CollectiveTimeout> timeout;
  std::int64_t tests_since_gone = 0;
  bool are_missing = false;
  for (std::int64_t tests = 0; !has_ended(); ++tests, ++tests_since_gone) {
    if (tests % kTestsBetweenOthers == kTestsBetweenOthers - 1) go_on_with_others();
    if (tests < tests_without_clock) {
      pause_processor();
      continue;
    }
    const auto now = Clock::now();
    if (tests == tests_without_clock) begin = looked = now, timeout.emplace(now);
    if (now - begin < spin) continue;
    if (are_missing && now - begin > kPatience)  // nothing can arrive meanwhile
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else
      sched_yield();
    if (now - looked < kBetweenLooks) continue;
    looked = now;
    if (timeout->is_over(now))
      fail(fmt::format("timed out after {} s ({})", CollectiveTimeout::limit().count(), who_is_missing(waiting)),
           waiting);
    bool are_all_to_come = true;
    are_missing = false;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      are_missing = are_missing || is_missing(i, waiting);
      are_all_to_come = are_all_to_come && !will_not_come(i, waiting);
    }
    if (are_all_to_come) continue;
    if (gone_since == Clock::time_point()) gone_since = now, tests_since_gone = 0;
    if (now - gone_since > kGrace && tests_since_gone > kGraceTests)
      fail(fmt::format("some ranks will never arrive ({})", who_is_missing(waiting)), waiting);
  }
}

// ---- FERMATA_CHECK_COLLECTIVES

namespace {

struct Described {
  char what[160], where[160];
};

void put(char (&to)[160], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), sizeof to - 1));
}

std::string description_of(const CollectiveCall& call) {
  std::string text = fmt::format("{} of {} {}", call.name, call.count, name(call.dtype));
  switch (call.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter: text += fmt::format(", {}", name(call.reduction)); break;
    default: break;
  }
  switch (call.kind) {
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter:
    case CollectiveKind::gather: text += fmt::format(", root {}", call.peer); break;
    case CollectiveKind::permute: text += fmt::format(", pairs {}", fmt::join(call.pairs, " ")); break;
    case CollectiveKind::barrier: text = std::string(call.name); break;
    default: break;
  }
  return text;
}

}  // namespace

void MpiTransport::compare_with_other_ranks(const CollectiveCall& call, std::uint64_t number) {
  Described own{};
  put(own.what, description_of(call)), put(own.where, short_location(call.where));
  std::vector<Described> all(ranks_.size());
  std::vector<MPI_Request> requests(1);
  {
    const std::lock_guard lock(mpi_mutex());
    require_success(
        MPI_Iallgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, control_, requests.data()),
        "MPI_Iallgather", call.where);
  }
  wait(requests, {*this, number, call.name, call.where});
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (std::strcmp(all[i].what, all[0].what) == 0 && std::strcmp(all[i].where, all[0].where) == 0) continue;
    const auto text = [&](std::size_t r) { return fmt::format("{} at {}", all[r].what, all[r].where); };
    const std::string first = text(0), other = text(i), label = fmt::format("rank {}", i);
    throw CollectiveError(
        7007, format_error(
                  7007, "CollectiveError",
                  fmt::format("{}: ranks 0 and {} make different calls (number {} of the group)", call.name, i, number),
                  {{"rank 0", first, ""}, {label, other, ""}}, call.where));
  }
}

// ---- Groups

Transport::Part MpiTransport::split(std::int64_t color, std::int64_t key, std::source_location where) {
  const CollectiveCall call{.kind = CollectiveKind::barrier,
                            .dtype = DType::u8,
                            .count = 0,
                            .from = nullptr,
                            .to = nullptr,
                            .name = "split",
                            .where = where};
  require_usable(call);
  const std::uint64_t number = ++calls_;
  RankStatus::begin_call(status_group_, number, call.name, where);
  if (checks_collectives()) compare_with_other_ranks(call, number);
  // This exchange has a timeout; the calls below do not wait for missing ranks.
  static int groups = 1;
  std::vector<std::array<std::int64_t, 3>> all(ranks_.size());
  const std::array<std::int64_t, 3> own{color, key, groups};
  std::vector<MPI_Request> requests(1);
  {
    const std::lock_guard lock(mpi_mutex());
    require_success(MPI_Iallgather(own.data(), 3, MPI_INT64_T, all.data(), 3, MPI_INT64_T, control_, requests.data()),
                    "MPI_Iallgather", where);
  }
  wait(requests, {*this, number, "split", where});
  Part part;
  int colors = 0;  // for MPI: the number of the first rank with this color
  while (all[static_cast<std::size_t>(colors)][0] != color) ++colors;
  for (std::size_t i = 0; i < all.size(); ++i) {
    groups = std::max(groups, static_cast<int>(all[i][2]));
    if (all[i][0] == color) part.ranks.push_back(static_cast<std::int64_t>(i));
  }
  const int status_group = groups++;  // the same for all colors: no rank is in two of them
  std::ranges::sort(part.ranks, {}, [&](std::int64_t r) { return std::pair(all[static_cast<std::size_t>(r)][1], r); });
  const auto place = std::ranges::find(part.ranks, rank_) - part.ranks.begin();
  std::vector<std::int64_t> of_world;
  for (const std::int64_t r : part.ranks) of_world.push_back(ranks_[static_cast<std::size_t>(r)]);
  const std::lock_guard lock(mpi_mutex());
  MPI_Comm made;
  require_success(MPI_Comm_split(comm_, colors, static_cast<int>(place), &made), "MPI_Comm_split", where);
  part.transport = std::make_unique<MpiTransport>(made, std::move(of_world), status_group, where);
  return part;
}

}  // namespace fermata::distributed

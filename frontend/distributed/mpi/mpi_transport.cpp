// See mpi_transport.h.
#include "frontend/distributed/mpi/mpi_transport.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "frontend/distributed/mpi/mpi_calls.h"
#include "frontend/distributed/mpi/rank_status.h"
#include "ir/error.h"
#include "ir/fork.h"
#include "runtime/environment.h"

namespace fermata::distributed {
namespace {

using Clock = std::chrono::steady_clock;

/// What a count of MPI holds. Tests choose less.
std::int64_t largest_count() {
  static const auto most =
      static_cast<std::int64_t>(environment_number("FERMATA_COLLECTIVE_CHUNK", std::uint64_t{1} << 30, 1));
  return std::min<std::int64_t>(most, std::numeric_limits<int>::max());
}

bool is_of_two(CollectiveKind kind) { return kind == CollectiveKind::send || kind == CollectiveKind::receive; }

bool checks_collectives() {
  static const bool checks = environment_number("FERMATA_CHECK_COLLECTIVES", 0) != 0;
  return checks;
}

std::chrono::seconds time_limit() {
  constexpr std::uint64_t kDefault = 600;
  static const std::chrono::seconds limit(environment_number("FERMATA_COLLECTIVE_TIMEOUT", kDefault));
  return limit;
}

// ---- Dtypes and reductions

/// Of numbers that are reduced.
MPI_Datatype number_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8: return MPI_UINT8_T;
    case DType::u16: return MPI_UINT16_T;
    case DType::u32: return MPI_UINT32_T;
    case DType::u64: return MPI_UINT64_T;
    case DType::i8: return MPI_INT8_T;
    case DType::i16: return MPI_INT16_T;
    case DType::i32: return MPI_INT32_T;
    case DType::i64: return MPI_INT64_T;
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::c64: return MPI_C_FLOAT_COMPLEX;
    case DType::c128: return MPI_C_DOUBLE_COMPLEX;
    default: throw_internal("MPI reduces no such numbers");
  }
}

/// Of elements that are moved: any dtype of the size.
MPI_Datatype element_type(DType dtype) {
  switch (byte_size(dtype)) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    case 8: return MPI_UINT64_T;
    case 16: return MPI_C_DOUBLE_COMPLEX;
    default: throw_internal("elements of a size that MPI has no type for");
  }
}

/// MPI leaves open what becomes of NaN: here one of any rank is the result, as in max() and min().
template <class T, bool kIsMax> void extreme(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* const a = static_cast<const T*>(in);
  auto* const b = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i)
    if (std::isnan(a[i]) || (kIsMax ? a[i] > b[i] : a[i] < b[i])) b[i] = std::isnan(b[i]) ? b[i] : a[i];
}
template <class T, bool kIsMax> MPI_Op extreme_operation() {
  static const MPI_Op operation = [] {
    MPI_Op made;
    MPI_Op_create(&extreme<T, kIsMax>, 1, &made);
    return made;
  }();
  return operation;
}

MPI_Op operation_of(CollectiveReduction reduction, DType dtype) {
  const bool is_max = reduction == CollectiveReduction::max;
  switch (reduction) {
    case CollectiveReduction::sum: return MPI_SUM;
    case CollectiveReduction::prod: return MPI_PROD;
    case CollectiveReduction::mean: throw_internal("a mean is a sum to a transport");
    case CollectiveReduction::max:
    case CollectiveReduction::min: break;
  }
  if (dtype == DType::f32) return is_max ? extreme_operation<float, true>() : extreme_operation<float, false>();
  if (dtype == DType::f64) return is_max ? extreme_operation<double, true>() : extreme_operation<double, false>();
  return is_max ? MPI_MAX : MPI_MIN;
}

// ---- One call as requests

/// Some elements of a type, as one element whose neighbor is a block further on: how parts of blocks are addressed.
class PartOfBlock {
 public:
  PartOfBlock(MPI_Datatype element, std::int64_t count, std::int64_t block_bytes, std::source_location where) {
    MPI_Datatype part;
    require_success(MPI_Type_contiguous(static_cast<int>(count), element, &part), "MPI_Type_contiguous", where);
    require_success(MPI_Type_create_resized(part, 0, block_bytes, &type_), "MPI_Type_create_resized", where);
    require_success(MPI_Type_commit(&type_), "MPI_Type_commit", where);
    MPI_Type_free(&part);
  }
  ~PartOfBlock() { MPI_Type_free(&type_); }  // once what uses it has ended
  PartOfBlock(const PartOfBlock&) = delete;
  PartOfBlock& operator=(const PartOfBlock&) = delete;
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_;
};

/// Starts the parts of a call, each of a count that MPI can express.
class Starter {
 public:
  Starter(const CollectiveCall& call, MPI_Comm comm, std::int64_t ranks, std::int64_t rank,
          std::vector<MPI_Request>& requests)
      : call_(call),
        comm_(comm),
        ranks_(ranks),
        rank_(rank),
        bytes_(static_cast<std::int64_t>(byte_size(call.dtype))),
        requests_(requests) {}

  void run() {
    if (call_.kind == CollectiveKind::barrier)
      return require_success(MPI_Ibarrier(comm_, &add()), "MPI_Ibarrier", call_.where);
    if (call_.kind == CollectiveKind::permute && call_.count != 0) fill_with_zeros();
    const std::int64_t most = largest_count();
    for (std::int64_t at = 0; at < call_.count; at += most) run_part(at, std::min(most, call_.count - at));
  }
  /// Of reduce_scatter, which reads the blocks of a part one after another.
  std::vector<std::byte> packed;

 private:
  MPI_Request& add() { return requests_.emplace_back(MPI_REQUEST_NULL); }
  const void* from(std::int64_t at) const {
    return call_.from == nullptr ? nullptr : static_cast<const std::byte*>(call_.from) + at * bytes_;
  }
  void* to(std::int64_t at) const {
    return call_.to == nullptr ? nullptr : static_cast<std::byte*>(call_.to) + at * bytes_;
  }
  void fill_with_zeros() const {
    for (std::size_t i = 1; i < call_.pairs.size(); i += 2)
      if (call_.pairs[i] == rank_) return;
    std::memset(call_.to, 0, static_cast<std::size_t>(call_.count * bytes_));
  }

  void run_part(std::int64_t at, std::int64_t count) {
    const auto n = static_cast<int>(count), peer = static_cast<int>(call_.peer), tag = static_cast<int>(call_.tag);
    const MPI_Datatype element = element_type(call_.dtype);
    int code = MPI_SUCCESS;
    switch (call_.kind) {
      case CollectiveKind::all_reduce:
        code = MPI_Iallreduce(from(at), to(at), n, number_type(call_.dtype), operation(), comm_, &add());
        break;
      case CollectiveKind::reduce:
        code = MPI_Ireduce(from(at), to(at), n, number_type(call_.dtype), operation(), peer, comm_, &add());
        break;
      case CollectiveKind::reduce_scatter: code = reduce_scatter(at, count); break;
      case CollectiveKind::broadcast:
        if (rank_ == call_.peer) std::memcpy(to(at), from(at), static_cast<std::size_t>(count * bytes_));
        code = MPI_Ibcast(to(at), n, element, peer, comm_, &add());
        break;
      case CollectiveKind::all_gather:
      case CollectiveKind::all_to_all:
      case CollectiveKind::scatter:
      case CollectiveKind::gather: code = move_blocks(at, count); break;
      case CollectiveKind::permute: code = permute(at, n, element); break;
      case CollectiveKind::send: code = MPI_Isend(from(at), n, element, peer, tag, comm_, &add()); break;
      case CollectiveKind::receive: code = MPI_Irecv(to(at), n, element, peer, tag, comm_, &add()); break;
      case CollectiveKind::barrier: break;
    }
    require_success(code, call_.name, call_.where);
  }

  MPI_Op operation() const { return operation_of(call_.reduction, call_.dtype); }

  int reduce_scatter(std::int64_t at, std::int64_t count) {
    const void* blocks = call_.from;
    if (count != call_.count) {
      if (packed.empty()) packed.resize(static_cast<std::size_t>(call_.count * ranks_ * bytes_));
      std::byte* const part = packed.data() + at * ranks_ * bytes_;
      for (std::int64_t r = 0; r < ranks_; ++r)
        std::memcpy(part + r * count * bytes_, from(r * call_.count + at), static_cast<std::size_t>(count * bytes_));
      blocks = part;
    }
    return MPI_Ireduce_scatter_block(blocks, to(at), static_cast<int>(count), number_type(call_.dtype), operation(),
                                     comm_, &add());
  }

  int move_blocks(std::int64_t at, std::int64_t count) {
    const PartOfBlock part(element_type(call_.dtype), count, call_.count * bytes_, call_.where);
    const int peer = static_cast<int>(call_.peer);
    switch (call_.kind) {
      case CollectiveKind::all_gather:
        return MPI_Iallgather(from(at), 1, part.type(), to(at), 1, part.type(), comm_, &add());
      case CollectiveKind::all_to_all:
        return MPI_Ialltoall(from(at), 1, part.type(), to(at), 1, part.type(), comm_, &add());
      case CollectiveKind::scatter:
        return MPI_Iscatter(from(at), 1, part.type(), to(at), 1, part.type(), peer, comm_, &add());
      default: return MPI_Igather(from(at), 1, part.type(), to(at), 1, part.type(), peer, comm_, &add());
    }
  }

  int permute(std::int64_t at, int n, MPI_Datatype element) {
    int code = MPI_SUCCESS;
    for (std::size_t i = 0; i + 1 < call_.pairs.size() && code == MPI_SUCCESS; i += 2) {
      const auto source = static_cast<int>(call_.pairs[i]), target = static_cast<int>(call_.pairs[i + 1]);
      if (target == rank_) code = MPI_Irecv(to(at), n, element, source, 0, comm_, &add());
      if (source == rank_ && code == MPI_SUCCESS) code = MPI_Isend(from(at), n, element, target, 0, comm_, &add());
    }
    return code;
  }

  const CollectiveCall& call_;
  MPI_Comm comm_;
  std::int64_t ranks_, rank_, bytes_;
  std::vector<MPI_Request>& requests_;
};

class MpiTransfer final : public StartedTransfer {
 public:
  explicit MpiTransfer(MpiTransport::Waiting waiting) : waiting_(std::move(waiting)) {}
  ~MpiTransfer() override {
    if (requests.empty()) return;
    try {
      wait();
    } catch (const Error&) {}  // no call is made from now on: give_up_on_mpi()
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

ForkSafeMutex& given_up_mutex = *new ForkSafeMutex;
std::string& given_up = *new std::string;

}  // namespace

void give_up_on_mpi(std::string reason) {
  const std::lock_guard lock(given_up_mutex);
  if (given_up.empty()) given_up = std::move(reason);
  RankStatus::set_state(RankState::failed);
}

std::string why_given_up() {
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
}

void MpiTransport::require_usable(const CollectiveCall& call) const {
  if (const std::string why = why_given_up(); !why.empty())
    throw CollectiveError(
        7008,
        format_error(7008, "CollectiveError",
                     fmt::format("{}: this process makes no calls with others since one failed: {}", call.name, why),
                     {}, call.where));
}

std::uint64_t MpiTransport::begin(const CollectiveCall& call) {
  require_usable(call);
  const std::uint64_t number = is_of_two(call.kind) ? calls_ : ++calls_;
  RankStatus::begin_call(status_group_, number, fmt::format("{} at {}", call.name, short_location(call.where)));
  if (checks_collectives() && !is_of_two(call.kind)) compare_with_other_ranks(call, number);
  return number;
}

std::unique_ptr<StartedTransfer> MpiTransport::start(const CollectiveCall& call) {
  const std::uint64_t number = begin(call);
  const bool is_of_pairs = call.kind == CollectiveKind::permute;
  auto transfer = std::make_unique<MpiTransfer>(
      Waiting{*this, number, std::string(call.name), call.where, is_of_two(call.kind) ? call.peer : -1});
  if (call.kind == CollectiveKind::send) {
    send(call);
    return transfer;
  }
  transfer->requests.reserve(8);
  const std::lock_guard lock(mpi_mutex());
  Starter starter(call,
                  is_of_two(call.kind) ? messages_
                  : is_of_pairs        ? pairs_
                                       : comm_,
                  size(), rank_, transfer->requests);
  starter.run();
  transfer->packed = std::move(starter.packed);
  return transfer;
}

void MpiTransport::send(const CollectiveCall& call) {
  const std::lock_guard lock(mpi_mutex());
  std::erase_if(outgoing_, [&](Outgoing& sent) {
    int ended = 0;
    require_success(
        MPI_Testall(static_cast<int>(sent.requests.size()), sent.requests.data(), &ended, MPI_STATUSES_IGNORE),
        call.name, call.where);
    return ended != 0;
  });
  Outgoing& sent = outgoing_.emplace_back();
  const auto* const elements = static_cast<const std::byte*>(call.from);
  sent.elements.assign(elements, elements + static_cast<std::size_t>(call.count) * byte_size(call.dtype));
  CollectiveCall copy = call;
  copy.from = sent.elements.data();
  Starter(copy, messages_, size(), rank_, sent.requests).run();
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

/// The ranks that have not come to the call, and what they are doing.
std::string MpiTransport::who_is_missing(const Waiting& waiting) const {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!is_missing(i, waiting) && !will_not_come(i, waiting)) continue;
    const std::int64_t rank = ranks_[i];
    const auto state = RankStatus::state(rank);
    if (!state) {
      missing.push_back(fmt::format("rank {} is on another machine, from which nothing has come", i));
      continue;
    }
    const std::string last = RankStatus::last_call(rank);
    missing.push_back(fmt::format("rank {} {}; {}", i,
                                  RankStatus::is_gone(rank)     ? "is gone"
                                  : *state == RankState::ended  ? "has ended"
                                  : *state == RankState::failed ? "has given up"
                                                                : "runs",
                                  last.empty() ? "it has called nothing" : "its last call is " + last));
  }
  return missing.empty() ? "all ranks have come to it" : fmt::format("{}", fmt::join(missing, ", "));
}

void MpiTransport::wait(std::vector<MPI_Request>& requests, const Waiting& waiting) const {
  constexpr int kTestsWithoutClock = 100;  // a test may take long: MPI, too, gives the processor away
  constexpr auto kSpin = std::chrono::microseconds(200);
  constexpr auto kBetweenLooks = std::chrono::milliseconds(1), kPatience = std::chrono::milliseconds(5);
  // From when a rank is gone to when its messages are given up, and as many tests.
  constexpr auto kGrace = std::chrono::milliseconds(200);
  constexpr int kGraceTests = 100;
  const auto fail = [&](const std::string& what) {
    give_up_on_mpi(what);
    throw CollectiveError(7006, format_error(7006, "CollectiveError", waiting.what + ": " + what, {}, waiting.where));
  };
  if (const std::string why = why_given_up(); !why.empty()) fail(why);
  Clock::time_point begin, looked, gone_since;
  std::int64_t tests_since_gone = 0;
  bool are_missing = false;
  for (std::int64_t tests = 0;; ++tests, ++tests_since_gone) {
    {
      const std::lock_guard lock(mpi_mutex());
      int ended = 0;
      require_success(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &ended, MPI_STATUSES_IGNORE),
                      waiting.what, waiting.where);
      if (ended != 0) break;
    }
    if (tests < kTestsWithoutClock) continue;
    const auto now = Clock::now();
    if (tests == kTestsWithoutClock) begin = looked = now;
    if (now - begin < kSpin) continue;
    if (are_missing && now - begin > kPatience)  // nothing can come meanwhile
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else
      sched_yield();
    if (now - looked < kBetweenLooks) continue;
    looked = now;
    if (time_limit().count() != 0 && now - begin > time_limit())
      fail(fmt::format("waited {} s in vain ({})", time_limit().count(), who_is_missing(waiting)));
    bool are_all_to_come = true;
    are_missing = false;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      are_missing = are_missing || is_missing(i, waiting);
      are_all_to_come = are_all_to_come && !will_not_come(i, waiting);
    }
    if (are_all_to_come) continue;
    if (gone_since == Clock::time_point()) gone_since = now, tests_since_gone = 0;
    if (now - gone_since > kGrace && tests_since_gone > kGraceTests)
      fail(fmt::format("not all ranks will come ({})", who_is_missing(waiting)));
  }
  if (RankStatus::has_failures()) fail(fmt::format("another rank has failed ({})", who_is_missing(waiting)));
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
  wait(requests, {*this, number, std::string(call.name), call.where});
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
  RankStatus::begin_call(status_group_, number, fmt::format("split at {}", short_location(where)));
  if (checks_collectives()) compare_with_other_ranks(call, number);
  // What the others want, which has a limit of time; the calls below do not wait for ranks that are not there.
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
  int colors = 0;  // as MPI takes them: the number of the first rank that gives it
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

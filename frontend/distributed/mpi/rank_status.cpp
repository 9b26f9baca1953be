// See rank_status.h. A rank writes its own entry only. The text is guarded by a count that is odd while it changes.
#include "frontend/distributed/mpi/rank_status.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "frontend/distributed/mpi/mpi_calls.h"
#include "ir/error.h"

namespace fermata::distributed {
namespace {

constexpr std::size_t kTextSize = 184;

struct alignas(64) Entry {
  std::atomic<std::uint64_t> calls[kStatusGroups];
  std::atomic<std::uint32_t> version;
  std::atomic<RankState> state;
  std::atomic<std::int64_t> process;
  std::atomic<std::uint32_t> failures;  // of all ranks of the machine, in the entry of its first one
  std::atomic<char> text[kTextSize];
};

Entry* own = nullptr;
std::atomic<std::uint32_t>* failures = nullptr;
std::vector<const Entry*> entries;  // by rank of the world; null on other machines

}  // namespace

void RankStatus::start(MPI_Comm world) {
  const auto where = std::source_location::current();
  MPI_Comm machine;
  int rank = 0, size = 0, neighbors = 0;
  require_success(MPI_Comm_rank(world, &rank), "MPI_Comm_rank", where);
  require_success(MPI_Comm_size(world, &size), "MPI_Comm_size", where);
  require_success(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine),
                  "MPI_Comm_split_type", where);
  require_success(MPI_Comm_size(machine, &neighbors), "MPI_Comm_size", where);
  void* memory = nullptr;
  MPI_Win window;
  require_success(MPI_Win_allocate_shared(sizeof(Entry) + alignof(Entry), 1, MPI_INFO_NULL, machine, &memory, &window),
                  "MPI_Win_allocate_shared", where);
  const auto aligned = [](void* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    return reinterpret_cast<void*>((address + alignof(Entry) - 1) / alignof(Entry) * alignof(Entry));
  };
  // Mappings are page-aligned, so the alignment of an entry is the same in every process.
  own = ::new (aligned(memory)) Entry{};
  own->process = getpid();
  std::vector<int> ranks(static_cast<std::size_t>(neighbors));
  require_success(MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, machine), "MPI_Allgather", where);
  entries.assign(static_cast<std::size_t>(size), nullptr);
  for (int i = 0; i < neighbors; ++i) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* theirs = nullptr;
    require_success(MPI_Win_shared_query(window, i, &bytes, &unit, &theirs), "MPI_Win_shared_query", where);
    auto* const entry = static_cast<Entry*>(aligned(theirs));
    if (i == 0) failures = &entry->failures;
    entries[static_cast<std::size_t>(ranks[static_cast<std::size_t>(i)])] = entry;
  }
  require_success(MPI_Barrier(machine), "MPI_Barrier", where);  // before any rank reads an entry
}

namespace {

/// The call that the text of this rank describes, so that a loop does not write it repeatedly.
struct Written {
  std::atomic<const char*> name, file;
  std::atomic<std::uint_least32_t> line;
} written;

void write_text(std::string_view text) {
  own->version.fetch_add(1, std::memory_order_acq_rel);
  const std::size_t length = std::min(text.size(), kTextSize - 1);
  for (std::size_t i = 0; i < length; ++i) own->text[i].store(text[i], std::memory_order_relaxed);
  own->text[length].store('\0', std::memory_order_relaxed);
  own->version.fetch_add(1, std::memory_order_release);
}

}  // namespace

void RankStatus::begin_call(int group, std::uint64_t number, std::string_view name, std::source_location where) {
  if (own == nullptr) return;
  if (written.name != name.data() || written.file != where.file_name() || written.line != where.line()) {
    write_text(fmt::format("{} at {}", name, short_location(where)));
    written.name = name.data(), written.file = where.file_name(), written.line = where.line();
  }
  if (group < kStatusGroups) own->calls[group].store(number, std::memory_order_release);
}

void RankStatus::set_state(RankState state) {
  if (own == nullptr) return;
  own->state = state;
  if (state == RankState::failed) failures->fetch_add(1);
}

bool RankStatus::has_failures() { return failures != nullptr && failures->load() != 0; }

namespace {
const Entry* entry_of(std::int64_t rank) {
  return rank < std::ssize(entries) ? entries[static_cast<std::size_t>(rank)] : nullptr;
}
}  // namespace

std::optional<std::uint64_t> RankStatus::calls(std::int64_t rank, int group) {
  const Entry* const entry = entry_of(rank);
  if (entry == nullptr || group >= kStatusGroups) return std::nullopt;
  return entry->calls[group].load(std::memory_order_acquire);
}

std::optional<RankState> RankStatus::state(std::int64_t rank) {
  const Entry* const entry = entry_of(rank);
  if (entry == nullptr) return std::nullopt;
  return entry->state.load();
}

std::string RankStatus::last_call(std::int64_t rank) {
  const Entry* const entry = entry_of(rank);
  if (entry == nullptr) return {};
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    const std::uint32_t before = entry->version.load(std::memory_order_acquire);
    std::string text;
    for (const std::atomic<char>& c : entry->text) {
      const char value = c.load(std::memory_order_relaxed);
      if (value == '\0') break;
      text += value;
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && entry->version.load(std::memory_order_relaxed) == before) return text;
  }
  return {};
}

bool RankStatus::is_gone(std::int64_t rank) {
  const Entry* const entry = entry_of(rank);
  if (entry == nullptr) return false;
  return kill(static_cast<pid_t>(entry->process.load()), 0) != 0 && errno == ESRCH;
}

bool RankStatus::is_lost(std::int64_t rank) { return state(rank) == RankState::failed || is_gone(rank); }

}  // namespace fermata::distributed

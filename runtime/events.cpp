// See events.h.
#include "runtime/events.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "ir/fork.h"
#include "ir/per_thread.h"
#include "ir/scope.h"
#include "runtime/memory_accounts.h"

namespace fermata {

// Together, as they are looked at together.
std::atomic<bool> events_wanted{false};
namespace {
std::atomic<bool> events_kept{false};
std::atomic<const EventListener*> event_listener{nullptr};
}  // namespace
constinit thread_local const char* event_thread_name = nullptr;

namespace {

constexpr std::size_t kBlockEvents = 4096;
/// A thread keeps so many blocks at most: 40 MiB.
constexpr std::size_t kMostBlocks = 256;
constexpr std::size_t kMostInfos = 50'000;

struct Block {
  std::array<Event, kBlockEvents> events;
};

/// Only its thread writes. `count` is published after the events before it, so that others may read those. Blocks stay
/// for the next session.
struct Buffer {
  std::atomic<std::uint64_t> number{0};
  std::atomic<const char*> name{nullptr};
  std::atomic<bool> taken{true};
  Buffer* next = nullptr;
  std::atomic<std::uint64_t> session{0};
  std::atomic<std::size_t> count{0};
  std::atomic<std::uint64_t> dropped{0};
  std::array<std::atomic<Block*>, kMostBlocks> blocks{};

  void add(const Event& event, std::uint64_t now) {
    if (session.load(std::memory_order_relaxed) != now) {
      count.store(0, std::memory_order_relaxed), dropped.store(0, std::memory_order_relaxed);
      session.store(now, std::memory_order_release);
    }
    const std::size_t at = count.load(std::memory_order_relaxed);
    if (at == kMostBlocks * kBlockEvents) {
      dropped.store(dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return;
    }
    std::atomic<Block*>& block = blocks[at / kBlockEvents];
    Block* place = block.load(std::memory_order_relaxed);
    if (place == nullptr) {
      place = new (std::nothrow) Block;
      if (place == nullptr) {
        dropped.store(dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return;
      }
      block.store(place, std::memory_order_relaxed);
    }
    place->events[at % kBlockEvents] = event;
    count.store(at + 1, std::memory_order_release);
  }
};

/// Buffers of threads that have ended are taken over only in a later session: a track is one thread.
struct Buffers {
  std::atomic<Buffer*> first{nullptr};
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> session{0};
  ForkSafeMutex mutex;  // of the beginning and end of sessions
  int sessions = 0;
};
Buffers& buffers() {
  static Buffers* const all = new Buffers;
  return *all;
}

Buffer* take_buffer() {
  Buffers& all = buffers();
  const std::uint64_t session = all.session.load();
  Buffer* buffer = all.first.load();
  while (buffer != nullptr && (buffer->session.load() == session || buffer->taken.exchange(true)))
    buffer = buffer->next;
  if (buffer == nullptr) {
    buffer = new Buffer;
    buffer->next = all.first.load();
    while (!all.first.compare_exchange_weak(buffer->next, buffer)) {}
  }
  buffer->number = all.count.fetch_add(1) + 1;
  buffer->name = event_thread_name;
  return buffer;
}

Buffer& mine() {
  struct Lease {
    Buffer* buffer = take_buffer();
    ~Lease() { buffer->taken = false; }
  };
  static constinit thread_local PerThread<Lease> lease;
  return *lease.get().buffer;
}

struct Infos {
  ForkSafeMutex mutex;
  std::unordered_map<std::string, const EventInfo*> by_text;
};
Infos& infos() {
  static Infos* const all = new Infos;
  return *all;
}

}  // namespace

const EventInfo* keep_event_info(EventInfo info) {
  std::string text = fmt::format("{}\t{}\t{}\t{}:{}\t{}\t{}\t{}\t{}\t{}", static_cast<int>(info.kind), info.name,
                                 info.detail, static_cast<const void*>(info.where.file_name()), info.where.line(),
                                 scope_of(info.where), callers_of(info.where), info.plan, info.bytes, info.operations);
  Infos& all = infos();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.by_text.find(text); found != all.by_text.end()) return found->second;
  if (all.by_text.size() >= kMostInfos) {
    info = {.kind = info.kind, .name = "other"};
    text = fmt::format("other {}", static_cast<int>(info.kind));
    if (const auto found = all.by_text.find(text); found != all.by_text.end()) return found->second;
  }
  return all.by_text.emplace(std::move(text), new EventInfo(std::move(info))).first->second;
}

const EventInfo* event_info(EventKind kind, std::string_view name, std::source_location where, double bytes,
                            double operations) {
  struct Known {
    const EventInfo* info = nullptr;
    const char* name = nullptr;
    const char* file = nullptr;
    const char* scope = nullptr;
  };
  static constinit thread_local PerThread<std::array<Known, 256>> known_of_thread;
  std::array<Known, 256>& recent = known_of_thread.get();
  const auto line = static_cast<std::size_t>(where.line()), column = static_cast<std::size_t>(where.column());
  const std::size_t hash = (reinterpret_cast<std::uintptr_t>(name.data()) >> 3) + line * 31 + column * 7 +
                           static_cast<std::size_t>(bytes) * 13 + static_cast<std::size_t>(kind);
  const char* const scope = scope_of(where).data();
  Known& known = recent[hash % recent.size()];
  if (known.info != nullptr && known.name == name.data() && known.file == where.file_name() &&
      known.info->kind == kind && known.info->where.line() == where.line() && known.info->bytes == bytes &&
      known.info->operations == operations && known.scope == scope && known.info->where.column() == where.column())
    return known.info;
  const EventInfo* const info = keep_event_info(
      {.kind = kind, .name = std::string(name), .where = where, .bytes = bytes, .operations = operations});
  known = {info, name.data(), where.file_name(), scope};
  return info;
}

void add_event(const Event& event) {
  if (keeps_events()) mine().add(event, buffers().session.load(std::memory_order_relaxed));
}

bool keeps_events() { return events_kept.load(std::memory_order_relaxed); }

void listen_to_events(const EventListener* listener) {
  Buffers& all = buffers();
  const std::lock_guard lock(all.mutex);
  event_listener.store(listener);
  events_wanted.store(true);
}

bool begin_heard_event(const EventInfo& info) {
  const EventListener* const listener = event_listener.load(std::memory_order_acquire);
  if (listener == nullptr) return false;
  listener->begin(info);
  return true;
}
void end_heard_event() { event_listener.load(std::memory_order_acquire)->end(); }

void add_instant(const EventInfo* info, std::uint64_t value) {
  const std::int64_t now = event_clock();
  add_event({now, now, info, value});
}

std::size_t memory_in_use() {
  const MemoryAccounts& accounts = memory_accounts();
  const std::size_t reserved = accounts.reserved.load(std::memory_order_relaxed),
                    idle = accounts.idle.load(std::memory_order_relaxed);
  return reserved > idle ? reserved - idle : 0;
}

void begin_events() {
  Buffers& all = buffers();
  const std::lock_guard lock(all.mutex);
  if (all.sessions++ > 0) return;
  all.session.fetch_add(1, std::memory_order_relaxed);
  events_kept.store(true), events_wanted.store(true);
}

std::vector<ThreadEvents> end_events(std::int64_t since) {
  Buffers& all = buffers();
  const std::lock_guard lock(all.mutex);
  if (--all.sessions == 0) events_kept.store(false), events_wanted.store(event_listener.load() != nullptr);
  const std::uint64_t session = all.session.load(std::memory_order_relaxed);
  std::vector<ThreadEvents> threads;
  for (Buffer* buffer = all.first.load(); buffer != nullptr; buffer = buffer->next) {
    if (buffer->session.load(std::memory_order_acquire) != session) continue;
    const char* const name = buffer->name.load();
    ThreadEvents thread{.thread = buffer->number.load(),
                        .name = name != nullptr ? name : "",
                        .dropped = buffer->dropped.load(std::memory_order_relaxed)};
    const std::size_t count = buffer->count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      const Event& event = buffer->blocks[i / kBlockEvents].load(std::memory_order_relaxed)->events[i % kBlockEvents];
      if (event.begin_ns >= since) thread.events.push_back(event);
    }
    if (!thread.events.empty() || thread.dropped != 0) threads.insert(threads.begin(), std::move(thread));
  }
  return threads;
}

}  // namespace fermata

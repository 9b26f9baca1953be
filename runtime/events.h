// Events: what the engine did and when, while somebody profiles it. The one source of profiles, traces and reports.
//
// A thread writes its events into a buffer of its own without a lock; buffers are bounded, and what finds no room is
// counted. What is always the same of an event (its name, sizes, source line) is kept once, as an EventInfo. With no
// profile running an event costs one relaxed load.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"

namespace fermata {

enum class EventKind : std::uint8_t {
  recorded,    // a call that was recorded: one of some
  eager,       // a call of a backend's kernel in eager mode
  sync,        // values are computed; contains plan_miss, compile and steps
  replay,      // a call of a compiled function that records nothing
  plan_miss,   // a structure that was not known; the detail is the first difference
  compile,     // a graph becomes a plan
  pass,        // of that
  code,        // machine code of one kernel
  kernel,      // a step that is compiled code
  call,        // a step, or a call that is played for a recorded one
  chunk,       // of a loop on a thread of the pool
  allocation,  // a large buffer from the system or the cache
  release,     //
  transfer,    // a collective on its way, beside steps
};
inline constexpr std::string_view kEventKindNames[] = {"recorded", "eager",      "sync",    "replay",  "plan miss",
                                                       "compile",  "pass",       "code",    "kernel",  "call",
                                                       "chunk",    "allocation", "release", "transfer"};

/// What all events of one kind, name and place have in common.
struct EventInfo {
  EventKind kind{};
  std::string name{}, detail{};               // "matmul", "[64, 128] [128, 256] -> [64, 256]"
  std::source_location where{};               // line 0 where there is none
  double bytes = 0, operations = 0;           // of one run: moved, and done
  DType dtype = DType::f32;                   // of the operations
  double strided_bytes = 0;                   // of those read across the order in which they lie
  std::uint64_t plan = 0;                     // of a step, by Plan::number
  std::vector<std::source_location> calls{};  // of a step: the lines of its calls
};

struct Event {
  std::int64_t begin_ns, end_ns;  // of steady_clock
  const EventInfo* info;
  std::uint64_t value;       // sync: how many calls were recorded since the one before; memory: bytes
  std::uint64_t memory = 0;  // bytes in use; 0 where that was not looked up
  std::uint64_t plan = 0;    // sync, replay: the plan that ran; 0 for calls one by one
};

/// Whether somebody profiles, or listens.
extern std::atomic<bool> events_wanted;
inline bool wants_events() { return events_wanted.load(std::memory_order_relaxed); }

inline std::int64_t event_clock() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// The one of all equal ones. Never freed; beyond some ten thousands a nameless one of the same kind stands for all.
const EventInfo* keep_event_info(EventInfo info);
/// The same for calls that come again and again, without building texts each time: by the address of the name.
const EventInfo* event_info(EventKind kind, std::string_view name, std::source_location where, double bytes = 0,
                            double operations = 0);
void add_event(const Event& event);
/// Bytes taken from the system for blocks plus those live in large buffers.
std::size_t memory_in_use();

/// Told where events begin and end that last for a scope: in the order of a stack, on their thread.
struct EventListener {
  void (*begin)(const EventInfo& info);
  void (*end)();
};
/// From now on, whether somebody profiles or not.
void listen_to_events(const EventListener* listener);
/// False without a listener.
bool begin_heard_event(const EventInfo& info);
void end_heard_event();
/// What the listener hears of an event that is timed in another way; nothing of a null one.
class HeardEvent {
 public:
  explicit HeardEvent(const EventInfo* info) : is_heard_(info != nullptr && begin_heard_event(*info)) {}
  ~HeardEvent() {
    if (is_heard_) end_heard_event();
  }
  HeardEvent(const HeardEvent&) = delete;
  HeardEvent& operator=(const HeardEvent&) = delete;

 private:
  const bool is_heard_;
};
/// Whether events are kept: somebody profiles.
bool keeps_events();

/// An event from here to the end of the scope, where events are wanted and `info` is set.
class EventScope {
 public:
  EventScope() = default;
  /// `describe()` gives the info; it is called only if somebody profiles.
  template <class Describe> explicit EventScope(Describe&& describe) {
    if (wants_events()) [[unlikely]]
      info_ = describe(), is_heard_ = begin_heard_event(*info_), begin_ = event_clock();
  }
  ~EventScope() {
    if (info_ == nullptr) [[likely]]
      return;
    add_event({begin_, event_clock(), info_, value, memory, plan});
    if (is_heard_) end_heard_event();
  }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;
  /// Whether there will be an event.
  bool is_wanted() const { return info_ != nullptr; }

  std::uint64_t value = 0, memory = 0, plan = 0;  // as in Event

 private:
  const EventInfo* info_ = nullptr;
  bool is_heard_ = false;
  std::int64_t begin_ = 0;
};
/// Something that takes no time.
void add_instant(const EventInfo* info, std::uint64_t value = 0);

/// The events of one thread.
struct ThreadEvents {
  bool is_device = false;    // steps of a device, by its own clock: device_times.h
  std::uint64_t thread = 0;  // numbered from 1 in the order in which threads had their first event
  std::string name{};
  std::vector<Event> events{};  // in the order in which they ended
  std::uint64_t dropped = 0;
};

/// Starts and stops the collection; sessions nest, and all see the events of all threads.
void begin_events();
/// The events of all threads that began at `since` or later.
std::vector<ThreadEvents> end_events(std::int64_t since);
/// As the tracks of traces show this thread: a literal.
extern constinit thread_local const char* event_thread_name;

}  // namespace fermata

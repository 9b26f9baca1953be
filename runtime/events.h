// Events: what the engine did and when, while a profile runs. The single source of profiles, traces and reports.
//
// A thread writes its events into its own buffer without a lock; buffers are bounded, and dropped events are counted.
// The constant part of an event (its name, sizes, source line) is stored once, as an EventInfo. Without a running
// profile an event costs one relaxed load.
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
  recorded,    // a recorded call (sampled)
  eager,       // a call of a backend's kernel in eager mode
  sync,        // computation of values; contains plan_miss, compile and steps
  replay,      // a call of a compiled function without recording
  plan_miss,   // a structure without a plan; the detail is the first difference
  compile,     // compilation of a graph to a plan
  pass,        // a pass of a compilation
  code,        // machine code of one kernel
  kernel,      // a step of compiled code
  call,        // a step, or a recorded call executed op by op
  chunk,       // part of a loop on a pool thread
  allocation,  // a large buffer from the system or the cache
  release,     //
  transfer,    // a collective in flight, concurrent with steps
};
inline constexpr std::string_view kEventKindNames[] = {"recorded", "eager",      "sync",    "replay",  "plan miss",
                                                       "compile",  "pass",       "code",    "kernel",  "call",
                                                       "chunk",    "allocation", "release", "transfer"};

/// The data shared by all events of one kind, name and place.
struct EventInfo {
  EventKind kind{};
  std::string name{}, detail{};               // "matmul", "[64, 128] [128, 256] -> [64, 256]"
  std::source_location where{};               // line 0 if there is none
  double bytes = 0, operations = 0;           // moved and executed by one run
  DType dtype = DType::f32;                   // of the operations
  double strided_bytes = 0;                   // the part of `bytes` read against the memory order
  std::uint64_t plan = 0;                     // the plan of a step, by Plan::number
  std::vector<std::source_location> calls{};  // the lines of the calls of a step
};

struct Event {
  std::int64_t begin_ns, end_ns;  // of steady_clock
  const EventInfo* info;
  std::uint64_t value;       // sync: calls recorded since the previous one; memory: bytes
  std::uint64_t memory = 0;  // bytes in use; 0 if not looked up
  std::uint64_t plan = 0;    // sync, replay: the plan that ran; 0 if run op by op
};

/// Whether a profile or listener is active.
extern std::atomic<bool> events_wanted;
inline bool wants_events() { return events_wanted.load(std::memory_order_relaxed); }

inline std::int64_t event_clock() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Interns an info. Never freed; beyond some tens of thousands, an unnamed one of the same kind is returned for all.
const EventInfo* keep_event_info(EventInfo info);
/// The same for repeated calls, without building texts each time: looked up by the address of the name.
const EventInfo* event_info(EventKind kind, std::string_view name, std::source_location where, double bytes = 0,
                            double operations = 0);
void add_event(const Event& event);
/// Bytes taken from the system for blocks, plus live bytes in large buffers.
std::size_t memory_in_use();

/// Called when scoped events begin and end: in stack order, on their thread.
struct EventListener {
  void (*begin)(const EventInfo& info);
  void (*end)();
};
/// Installs a listener, which is called whether or not a profile runs.
void listen_to_events(const EventListener* listener);
/// Returns false without a listener.
bool begin_heard_event(const EventInfo& info);
void end_heard_event();
/// Reports an event to the listener that is timed in another way; does nothing if `info` is null.
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
/// Whether events are collected: a profile runs.
bool keeps_events();

/// An event from construction to the end of the scope, if events are enabled and `info` is set.
class EventScope {
 public:
  EventScope() = default;
  /// `describe()` returns the info; it is called only if events are enabled.
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
  /// Whether an event will be added.
  bool is_wanted() const { return info_ != nullptr; }

  std::uint64_t value = 0, memory = 0, plan = 0;  // as in Event

 private:
  const EventInfo* info_ = nullptr;
  bool is_heard_ = false;
  std::int64_t begin_ = 0;
};
/// Adds an event without duration.
void add_instant(const EventInfo* info, std::uint64_t value = 0);

/// The events of one thread.
struct ThreadEvents {
  bool is_device = false;    // steps of a device, timed by its own clock: device_times.h
  std::uint64_t thread = 0;  // numbered from 1 in the order in which threads had their first event
  std::string name{};
  std::vector<Event> events{};  // in the order in which they ended
  std::uint64_t dropped = 0;
};

/// Starts the collection of events. Sessions nest, and each sees the events of all threads.
void begin_events();
/// Ends the session. Returns the events of all threads that began at `since` or later.
std::vector<ThreadEvents> end_events(std::int64_t since);
/// The name of this thread's track in traces: a literal.
extern constinit thread_local const char* event_thread_name;

}  // namespace fermata

// Watching calls: the dispatch trace (which kernel every call reached, indented by nesting; FERMATA_TRACE_DISPATCH=1)
// and profiles. Both hide behind one flag, so a call without them costs one relaxed load.
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "dispatch/operator.h"
#include "dispatch/profile.h"
#include "ir/error.h"
#include "ir/scope.h"
#include "runtime/bound_plan.h"
#include "runtime/environment.h"
#include "runtime/events.h"

namespace fermata {
namespace {

bool wanted_from_start() {
  const char* value = environment_variable("FERMATA_TRACE_DISPATCH");
  return value != nullptr && std::string_view(value) != "0";
}

/// A call that is running: since when, where it is timed, and whether it becomes an event.
struct Started {
  std::int64_t since;
  EventKind kind;
  bool is_event;
};

/// The calls of a thread that are running. What is nested deeper is not timed.
struct Running {
  static constexpr int kDeepest = 8;
  int depth = 0;
  std::uint32_t recorded = 0;
  Started calls[kDeepest]{};
};

std::atomic<bool> printing{wanted_from_start()};
std::atomic<int> profiles{0};
thread_local CallProfile* profile = nullptr;
constinit thread_local Running running;
/// Of recorded calls one in so many is an event: an event costs about as much as recording.
constexpr std::uint32_t kRecordedCallsPerEvent = 32;

/// A step of a plan, or a call that is played for a recorded one.
void print_step(std::string_view name, BackendKey backend, std::source_location where) {
  fmt::print(stderr, "fermata dispatch {:{}}{} [step/{}]  {}\n", "", 2 * running.depth, name,
             kBackendNames[static_cast<std::size_t>(backend)], short_location(where));
}

void update() {
  watch_calls.store(printing.load() || profiles.load() > 0);
  watch_step.store(printing.load() ? &print_step : nullptr);
}

void print(const Call& call) {
  const std::size_t row = call.keys.cell() / 8, column = call.keys.cell() % 8;
  fmt::print(stderr, "fermata dispatch {:{}}{} [{}{}{}]  {}\n", "", 2 * running.depth, call.entry.name,
             row == 0 ? "-" : kFunctionalityNames[row - 1], column == 0 ? "" : "/",
             column == 0 ? "" : kBackendNames[column - 1], short_location(call.where));
}

}  // namespace

std::atomic<bool> watch_calls{wanted_from_start()};
namespace {
[[maybe_unused]] const bool watches_steps = (update(), true);
}

void set_trace_dispatch(bool on) {
  printing.store(on);
  update();
}

void watch_call(const Call& call, bool entering) {
  constexpr auto row_of = [](Functionality f) { return static_cast<std::size_t>(f) + 1; };
  const std::size_t row = call.keys.cell() / 8;
  Running& now = running;
  if (entering) {
    if (printing.load(std::memory_order_relaxed)) [[unlikely]]
      print(call);
    const int depth = now.depth++;
    if (depth >= Running::kDeepest) return;
    Started& start = now.calls[depth];
    start = {0, row == row_of(Functionality::dense) ? EventKind::eager : EventKind::recorded, false};
    if (wants_events())
      start.is_event = start.kind == EventKind::eager ||
                       (row == row_of(Functionality::capture) && ++now.recorded % kRecordedCallsPerEvent == 0);
    if (start.is_event || profile != nullptr) start.since = event_clock();
    return;
  }
  const int depth = --now.depth;
  if (depth >= Running::kDeepest || now.calls[depth].since == 0) return;
  const Started start = now.calls[depth];
  const std::int64_t end = event_clock();
  if (start.is_event)
    add_event({start.since, end, event_info(start.kind, call.entry.name, within_scope(call.where)), 0});
  if (profile != nullptr && row == row_of(Functionality::dense) && family(call.entry.op) != Family::composite)
    profile->add(std::string(call.entry.name), static_cast<double>(end - start.since));
}

void watch_call_events(bool on) {
  profiles.fetch_add(on ? 1 : -1);
  update();
}

CallProfile::CallProfile() : outer_(profile) {
  profile = this;
  profiles.fetch_add(1);
  update();
}
CallProfile::~CallProfile() {
  profile = outer_;
  profiles.fetch_sub(1);
  update();
}

}  // namespace fermata

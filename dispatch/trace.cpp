// Watching calls: the dispatch trace (which kernel every call reached, indented by nesting; FERMATA_TRACE_DISPATCH=1)
// and profiles. Both hide behind one flag, so a call that nobody watches pays one relaxed load.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "dispatch/operator.h"
#include "dispatch/profile.h"
#include "ir/error.h"
#include "runtime/bound_plan.h"
#include "runtime/environment.h"

namespace fermata {
namespace {

using Clock = std::chrono::steady_clock;

bool wanted_from_start() {
  const char* value = environment_variable("FERMATA_TRACE_DISPATCH");
  return value != nullptr && std::string_view(value) != "0";
}

std::atomic<bool> printing{wanted_from_start()};
std::atomic<int> profiles{0};
thread_local int depth = 0;
thread_local CallProfile* profile = nullptr;
thread_local std::vector<Clock::time_point> started;

/// A step of a plan, or a call that is played for a recorded one.
void print_step(std::string_view name, BackendKey backend, std::source_location where) {
  fmt::print(stderr, "fermata dispatch {:{}}{} [step/{}]  {}\n", "", 2 * depth, name,
             kBackendNames[static_cast<std::size_t>(backend)], short_location(where));
}

void update() {
  watch_calls.store(printing.load() || profiles.load() > 0);
  watch_step.store(printing.load() ? &print_step : nullptr);
}

void print(const Call& call) {
  const std::size_t row = call.keys.cell() / 8, column = call.keys.cell() % 8;
  fmt::print(stderr, "fermata dispatch {:{}}{} [{}{}{}]  {}\n", "", 2 * depth, call.entry.name,
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
  if (entering) {
    if (printing.load(std::memory_order_relaxed)) print(call);
    ++depth;
    if (profile != nullptr) started.push_back(Clock::now());
    return;
  }
  --depth;
  if (profile == nullptr || started.empty()) return;
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - started.back()).count();
  started.pop_back();
  if (call.keys.cell() / 8 == static_cast<std::size_t>(Functionality::dense) + 1 &&
      family(call.entry.op) != Family::composite)
    profile->add(std::string(call.entry.name), ns);
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

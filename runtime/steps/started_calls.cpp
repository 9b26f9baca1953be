// See started_calls.h.
#include "runtime/steps/started_calls.h"

#include <algorithm>
#include <utility>

#include "runtime/events.h"

namespace fermata {

void StartedCalls::add(std::uint32_t number, std::unique_ptr<StartedCall> call, std::string_view name,
                       std::source_location where) {
  if (call == nullptr) return;
  Call& added = calls_.emplace_back(Call{number, std::move(call), nullptr, 0});
  if (wants_events()) [[unlikely]]
    added.info = event_info(EventKind::transfer, name, where), added.begin_ns = event_clock();
}

void StartedCalls::finish(std::uint32_t number) {
  const auto found = std::ranges::find(calls_, number, &Call::number);
  if (found == calls_.end()) return;
  Call ending = std::move(*found);
  calls_.erase(found);
  ending.call->finish();
  note_end(ending);
}

void StartedCalls::progress() {
  for (Call& call : calls_)
    if (!call.has_ended && call.call->progress()) note_end(call);
}

void StartedCalls::note_end(Call& call) {
  if (!std::exchange(call.has_ended, true) && call.info != nullptr)
    add_event({call.begin_ns, event_clock(), call.info, 0});
}

}  // namespace fermata

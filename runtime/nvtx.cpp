// See nvtx.h.
#include "runtime/nvtx.h"

#if FERMATA_WITH_NVTX

#define NVTX_AS_SYSTEM_HEADER
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>
#include <unordered_map>

#include "ir/fork.h"
#include "ir/scope.h"
#include "runtime/environment.h"
#include "runtime/events.h"

namespace fermata {
namespace {

/// The domain, and the names that the tool has been told, by the address of what they are of: infos and names of scopes
/// stay for the life of the process.
struct Domain {
  nvtxDomainHandle_t handle = nvtxDomainCreateA("fermata");
  ForkSafeMutex mutex;
  std::unordered_map<const void*, nvtxStringHandle_t> names;
};
Domain& domain() {
  static Domain* const all = new Domain;
  return *all;
}

template <class Text> void push(const void* of, Text&& text) {
  Domain& all = domain();
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION, range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  {
    const std::lock_guard lock(all.mutex);
    const auto [at, is_new] = all.names.try_emplace(of);
    if (is_new) at->second = nvtxDomainRegisterStringA(all.handle, text().c_str());
    range.message.registered = at->second;
  }
  nvtxDomainRangePushEx(all.handle, &range);
}

void begin_event(const EventInfo& info) {
  push(&info, [&] {
    std::string text(kEventKindNames[static_cast<std::size_t>(info.kind)]);
    text += ' ';
    text += info.name;
    if (info.where.line() != 0) text += "  " + scoped_location(info.where);
    return text;
  });
}
void begin_scope(const std::string& path) {
  push(&path, [&] { return path; });
}
void end_range() { nvtxDomainRangePop(domain().handle); }

constexpr EventListener kEvents{&begin_event, &end_range};
constexpr detail::ScopeListener kScopes{&begin_scope, &end_range};

}  // namespace

void show_ranges_to_tools() {
  const char* const tool = environment_variable("NVTX_INJECTION64_PATH");
  if (tool == nullptr || *tool == '\0') return;
  listen_to_events(&kEvents);
  detail::scope_listener.store(&kScopes);
}

}  // namespace fermata

#else

void fermata::show_ranges_to_tools() {}

#endif

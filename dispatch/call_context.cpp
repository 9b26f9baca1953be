// See call_context.h. Interned for ever: there are as many contexts as there are kernels times combinations of keys in
// use.
#include "dispatch/call_context.h"

#include <deque>
#include <mutex>
#include <unordered_map>

#include "ir/fork.h"
#include "ir/per_thread.h"

namespace fermata {

ContextHooks context_hooks;

namespace {

struct Hash {
  std::size_t operator()(const CallContext& c) const {
    std::uint64_t h = reinterpret_cast<std::uintptr_t>(c.kernel);
    for (const std::uint64_t word : {c.keys.included.bits, c.keys.excluded.bits, c.region})
      h = (h ^ word) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
    return h;
  }
};

struct Contexts {
  ForkSafeMutex mutex;
  std::deque<CallContext> all;  // number - 1; elements stay where they are
  std::unordered_map<CallContext, std::uint32_t, Hash> numbers;
};
Contexts& contexts() {
  static auto* c = new Contexts;  // outlives every static tensor
  return *c;
}

struct Known {
  CallContext context;
  std::uint32_t number = 0;
};
struct KnownPair {
  Known interned, asked;
};
KnownPair& last() {
  static constinit thread_local PerThread<KnownPair> known;
  return known.get();
}

}  // namespace

std::uint32_t intern(const CallContext& context) {
  Known& last_interned = last().interned;
  if (last_interned.number != 0 && last_interned.context == context) return last_interned.number;
  Contexts& c = contexts();
  const std::lock_guard lock(c.mutex);
  const auto [at, fresh] = c.numbers.try_emplace(context, static_cast<std::uint32_t>(c.all.size() + 1));
  if (fresh) c.all.push_back(context);
  last_interned = {context, at->second};
  return at->second;
}

CallContext context_of(std::uint32_t number) {
  Known& last_asked = last().asked;
  if (last_asked.number == number && number != 0) return last_asked.context;
  Contexts& c = contexts();
  const std::lock_guard lock(c.mutex);
  last_asked = {c.all[number - 1], number};
  return c.all[number - 1];
}

CallContext present_context(const KernelFunction* kernel) { return {kernel, thread_keys, context_hooks.region()}; }

ContextScope::ContextScope(const CallContext& context)
    : keys_(thread_keys), region_(context_hooks.enter_region(context.region)) {
  thread_keys = {context.keys.included - DispatchKeySet(Functionality::capture), context.keys.excluded};
}
ContextScope::~ContextScope() {
  thread_keys = keys_;
  context_hooks.leave_region(region_);
}

StreamScope::StreamScope() : StreamScope(context_hooks.reserve()) {}
StreamScope::StreamScope(const DrawStream& stream) : before_(context_hooks.enter_stream(stream)) {}
StreamScope::~StreamScope() { context_hooks.leave_stream(before_); }

}  // namespace fermata

// What a recorded call of a kernel keeps of the moment when it was made: the kernel that its cell held, the keys of its
// thread, and the state of modes that the frontend has beside keys. Running it later restores them, so that a kernel
// sees what it would have seen at once. Contexts are interned: a node and a plan hold a number.
#pragma once

#include <array>
#include <cstdint>

#include "dispatch/draw_stream.h"
#include "dispatch/operator.h"

namespace fermata {

struct CallContext {
  const KernelFunction* kernel = nullptr;
  ThreadKeys keys{};
  std::uint64_t region = 0;  // of autocast
  bool operator==(const CallContext& o) const {
    return kernel == o.kernel && keys.included == o.keys.included && keys.excluded == o.keys.excluded &&
           region == o.region;
  }
};

/// The number of a context, from 1 on; 0 stands for none.
std::uint32_t intern(const CallContext& context);
CallContext context_of(std::uint32_t number);
/// That of a call which is being recorded on this thread.
CallContext present_context(const KernelFunction* kernel);

/// What the frontend installs, once.
struct ContextHooks {
  std::uint64_t (*region)() = nullptr;                            // at hand
  std::uint64_t (*enter_region)(std::uint64_t region) = nullptr;  // gives what leave_region() takes
  void (*leave_region)(std::uint64_t before) = nullptr;
  DrawStream (*reserve)() = nullptr;                               // from this thread's generator, for one call
  DrawStream (*enter_stream)(const DrawStream& stream) = nullptr;  // gives what leave_stream() takes
  void (*leave_stream)(const DrawStream& before) = nullptr;
};
extern ContextHooks context_hooks;

/// The keys and modes of a recorded call, for a scope. Nothing is recorded inside.
class ContextScope {
 public:
  explicit ContextScope(const CallContext& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  ThreadKeys keys_;
  std::uint64_t region_;
};

}  // namespace fermata

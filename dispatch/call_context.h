// The dispatch context of a recorded call: the kernel in its cell, the thread's keys, and frontend modes that are not
// keys. It is restored when the call runs, so that the kernel sees the state of the time of the call. Contexts are
// interned: nodes and plans hold a number.
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

/// Returns the number of a context, starting at 1; 0 means none.
std::uint32_t intern(const CallContext& context);
CallContext context_of(std::uint32_t number);
/// The context of a call that is being recorded on this thread.
CallContext present_context(const KernelFunction* kernel);

/// What the frontend installs, once.
struct ContextHooks {
  std::uint64_t (*region)() = nullptr;                            // the current one
  std::uint64_t (*enter_region)(std::uint64_t region) = nullptr;  // returns the argument of leave_region()
  void (*leave_region)(std::uint64_t before) = nullptr;
  DrawStream (*reserve)() = nullptr;                               // reserved from this thread's generator for one call
  DrawStream (*enter_stream)(const DrawStream& stream) = nullptr;  // returns the argument of leave_stream()
  void (*leave_stream)(const DrawStream& before) = nullptr;
};
extern ContextHooks context_hooks;

/// Restores the keys and modes of a recorded call for a scope. Nothing is recorded inside.
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

// Random number streams. An impure call draws from its own stream, so its numbers do not depend on when it runs.
#pragma once

#include <cstdint>

namespace fermata {

struct DrawStream {
  std::uint64_t key = 0, offset = 0;
};

/// Redirects this thread's draws to another stream for a scope.
class StreamScope {
 public:
  /// A new stream, reserved from the thread's generator for one call.
  StreamScope();
  explicit StreamScope(const DrawStream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  DrawStream before_;
};

}  // namespace fermata

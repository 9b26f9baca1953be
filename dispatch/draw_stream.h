// Streams of random numbers: a call that is not pure draws from one of its own, so that what it draws does not depend
// on when it runs.
#pragma once

#include <cstdint>

namespace fermata {

struct DrawStream {
  std::uint64_t key = 0, offset = 0;
};

/// Draws of this thread come from another stream, for a scope.
class StreamScope {
 public:
  /// A new one, which is reserved from the thread's generator for one call.
  StreamScope();
  explicit StreamScope(const DrawStream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  DrawStream before_;
};

}  // namespace fermata

// Makes fork() safe while other threads compute. The child has only one thread, so work in progress on other threads
// would never finish.
//
// Before a fork, stages are quiesced in order, and resumed afterwards; in the child they are reinitialized. The last
// stage locks all ForkSafe mutexes, in any order in which they are free, and unlocks them afterwards. Mutexes of
// unshared objects, or that only syncs hold, need not be ForkSafe.
#pragma once

#include <functional>
#include <mutex>
#include <new>

namespace fermata {

enum class ForkStage { background, syncs, memory };

struct ForkHandlers {
  std::function<void()> before;     // returns when the stage is quiet, or after a timeout
  std::function<void()> in_parent;  // any of the three may be empty
  std::function<void()> in_child;
};
/// Handlers are registered for the lifetime of the process.
void at_fork(ForkStage stage, ForkHandlers handlers);

namespace detail {
class ForkSafeBase {
 public:
  virtual bool try_to_lock() = 0;
  virtual void let_go() = 0;
  /// In the child: a recursive mutex stores the owner's thread id, which is different there.
  virtual void begin_anew() = 0;

 protected:
  ForkSafeBase();
  ~ForkSafeBase();
};
}  // namespace detail

template <class Mutex> class ForkSafe : public Mutex, private detail::ForkSafeBase {
  bool try_to_lock() override { return this->try_lock(); }
  void let_go() override { this->unlock(); }
  void begin_anew() override { ::new (static_cast<void*>(static_cast<Mutex*>(this))) Mutex; }
};
using ForkSafeMutex = ForkSafe<std::mutex>;

}  // namespace fermata

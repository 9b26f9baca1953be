// What makes fork() safe while other threads compute: the child has one thread, and whatever the others were in the
// middle of would stay so for ever.
//
// Before a fork each stage comes to rest, one after the other, and goes on afterwards; in the child it begins anew.
// Mutexes are the last stage: all that are declared as ForkSafe are taken, in whatever order they are free, and let go
// of afterwards. Mutexes of objects that threads do not share, or that are held by a sync only, need not be.
#pragma once

#include <functional>
#include <mutex>
#include <new>

namespace fermata {

enum class ForkStage { background, syncs, memory };

struct ForkHandlers {
  std::function<void()> before;     // returns when all is at rest, or too much time has passed
  std::function<void()> in_parent;  // may be empty, as each of them
  std::function<void()> in_child;
};
/// Handlers stay for the life of the process.
void at_fork(ForkStage stage, ForkHandlers handlers);

namespace detail {
class ForkSafeBase {
 public:
  virtual bool try_to_lock() = 0;
  virtual void let_go() = 0;
  /// In the child: a recursive mutex belongs to the number of a thread, which is another one there.
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

// A spin lock for very short critical sections: one atomic exchange to acquire it, a store to release it.
#pragma once

#include <atomic>
#include <thread>

namespace fermata {

class SpinLock {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void wait() const {
    for (int turns = 0; held_.load(std::memory_order_relaxed); ++turns)
      if (turns > 64) std::this_thread::yield();  // the holder may be waiting for this core
  }
  std::atomic<bool> held_{false};
};

}  // namespace fermata

// See background.h.
#include "runtime/background.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/thread_pool.h"

namespace fermata {
namespace {

class Background {
 public:
  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      work_.push_back(std::move(work));
      if (!started_) started_ = true, thread_ = std::thread([this] { loop(); });
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return work_.empty() && !busy_; });
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      work_.clear();
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void loop() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return ended_ || !work_.empty(); });
      if (ended_) return;
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      next();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
  bool started_ = false, busy_ = false, ended_ = false;
};

/// Ends before whatever was there when work was first given, such as a compiler that was loaded for it.
Background& background() {
  static Background* const instance = [] {
    auto* const made = new Background;
    std::atexit([] { background().end(); });
    return made;
  }();
  return *instance;
}

}  // namespace

void run_in_background(std::function<void()> work) {
  if (thread_count() == 1) work();
  else background().add(std::move(work));
}

void wait_for_background() { background().wait(); }

}  // namespace fermata

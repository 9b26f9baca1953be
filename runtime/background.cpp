// See background.h.
#include "runtime/background.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "ir/fork.h"
#include "ir/per_thread.h"
#include "runtime/events.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// About a quarter of a processor that somebody else wants too: the caller's own work comes first.
constexpr int kNiceness = 5;

class Background {
 public:
  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      if (has_thread()) {
        work_.push_back(std::move(work));
        work = nullptr;
      }
    }
    if (work != nullptr) return work();
    changed_.notify_all();
  }
  /// Notifies again while it waits: glibc before 2.41 may lose a notification (its bug 25847).
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return work_.empty() && !busy_; }))
      changed_.notify_all();
  }
  /// A fork leaves the child without the thread, so nothing may be half done: not here, nor in what the work uses.
  void before_fork() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++forks_;
    changed_.wait(lock, [this] { return !busy_; });
  }
  void after_fork() {
    {
      const std::lock_guard lock(mutex_);
      --forks_;
    }
    changed_.notify_all();
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
  /// Starts the thread on first use. False if none can be started.
  bool has_thread() {
    if (started_) return true;
    try {
      thread_ = std::thread([this] { loop(); });
    } catch (const std::system_error&) { return false; }
    return started_ = true;
  }
  void loop() {
    event_thread_name = "background compiler";
    static_cast<void>(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNiceness));  // of a thread, on Linux
    for (std::unique_lock<std::mutex> lock(mutex_);;) {
      changed_.wait(lock, [this] { return ended_ || (!work_.empty() && forks_ == 0); });
      if (ended_) return;
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      try {
        next();
      } catch (const std::bad_alloc&) {}  // nobody waits for it, and whoever misses what it makes asks again
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  ForkSafeMutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
  int forks_ = 0;  // that are about to happen
  bool started_ = false, busy_ = false, ended_ = false;
};

constinit std::atomic<Background*> current{nullptr};

void end_current() {
  if (Background* const b = current.load()) b->end();
}

/// What belongs to the main thread is destroyed before everything static, whichever thread has made that: a compiler
/// that was loaded for work, and what the work itself has made.
struct EndedByMainThread {
  ~EndedByMainThread() {
    if (gettid() == getpid()) end_current();
  }
};
void end_with_this_thread() {
  static constinit thread_local PerThread<EndedByMainThread> ended;
  ended.get();
}
/// The main thread loads the library of most programs. It may never give work itself, and end while others' work runs.
[[maybe_unused]] const bool ends_with_main_thread = (end_with_this_thread(), true);

/// Where another thread ends the process, ends before whatever was there when work was first given.
Background& background() {
  static const bool made = [] {
    current = new Background;
    std::atexit(end_current);
    at_fork(ForkStage::background, {[] { current.load()->before_fork(); }, [] { current.load()->after_fork(); },
                                    // The thread of the old one is not there to be joined.
                                    [] { current = new Background; }});
    return true;
  }();
  static_cast<void>(made);
  end_with_this_thread();  // of a library that another thread has loaded
  return *current.load();
}

}  // namespace

void run_in_background(std::function<void()> work) {
  if (thread_count() == 1)
    work();
  else
    background().add(std::move(work));
}

void run_beside(std::function<void()> work) { background().add(std::move(work)); }

void join_background_at_exit() {
  background();
  std::atexit(end_current);
}

void wait_for_background() { background().wait(); }

}  // namespace fermata

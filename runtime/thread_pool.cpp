// See thread_pool.h.
//
// One word drives a loop: `remaining_`, the count of unclaimed chunks. Storing it publishes a job, decreasing it claims
// a chunk, zero means there is nothing to do. Sleeping workers are woken by another word, `calls_`. A claim that
// succeeds belongs to whatever job is current: the job cannot end, nor its description change, before that chunk is
// counted off `unfinished_`. So a worker that slept through any number of jobs needs no generation counter to be safe.
#include "runtime/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ir/fork.h"
#include "runtime/allowed_processors.h"
#include "runtime/cancellation.h"
#include "runtime/environment.h"
#include "runtime/events.h"

namespace fermata {
namespace {

using Body = FunctionRef<void(std::int64_t, std::int64_t)>;
using Clock = std::chrono::steady_clock;

constexpr Clock::duration kSpin = std::chrono::microseconds(100);
/// Between two looks at the clock a thread that waits does nothing for a microsecond or two. Where more has passed,
/// somebody else was given its processor.
constexpr Clock::duration kPushedAside = std::chrono::microseconds(25);
/// Waking a worker costs the caller some 10 us, and the worker comes after some 20.
constexpr double kWorthWaking = 70'000;
/// A claim costs some tens of nanoseconds and a cache miss: chunks shorter than this waste it.
constexpr double kChunkNanoseconds = 4'000;
/// Enough for a thread that is pushed aside by another program to hand its share to the rest.
constexpr std::int64_t kChunksPerThread = 4;

constinit thread_local bool inside_loop = false;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int default_thread_count() {
  const auto processors = static_cast<std::uint64_t>(allowed_processors());
  return static_cast<int>(std::min<std::uint64_t>(environment_number("FERMATA_NUM_THREADS", processors, 1), 1024));
}

std::atomic<int>& wanted_threads() {
  static std::atomic<int> wanted{default_thread_count()};
  return wanted;
}

class ThreadPool {
 public:
  /// Takes the pool if it is free. False: run on the caller. `ns` is the cost of all on one thread.
  bool run(std::int64_t begin, std::int64_t end, std::int64_t chunk, Body body, double ns);

 private:
  void resize(int threads);
  void wake_workers(double ns);
  void work_loop();
  void help();
  void run_chunk(std::int64_t index);
  void join();
  void raise_failure();

  // The word that everybody watches has a line of its own, and so do the one that finishing threads write, the one that
  // callers take turns with, and what idle workers read all the time.
  alignas(64) std::atomic<int> remaining_{0};
  alignas(64) std::atomic<int> unfinished_{0};
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<std::uint32_t> calls_{0};  // of workers that are asleep
  alignas(64) std::atomic<bool> taken_{false};
  alignas(64) std::atomic<bool> stop_{false};
  int processors_ = 1, workers_wanted_ = 0;  // written while there are no workers
  // The current job: written while no thread can hold a claim.
  alignas(64) const Body* body_ = nullptr;
  std::int64_t begin_ = 0, end_ = 0, chunk_ = 0;
  int chunks_ = 0;
  Clock::time_point last_end_;                 // of a loop
  std::atomic<std::int64_t> failed_chunk_{0};  // the lowest that failed, or chunks_
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

void ThreadPool::run_chunk(std::int64_t index) {
  // Chunks are claimed in order, so all below a failed one are running or done: the lowest failure is always found.
  if (index < failed_chunk_.load(std::memory_order_relaxed)) {
    const std::int64_t b = begin_ + index * chunk_;
    try {
      (*body_)(b, std::min(b + chunk_, end_));
    } catch (...) {
      const std::lock_guard lock(failure_mutex_);
      if (index < failed_chunk_.load(std::memory_order_relaxed)) {
        failed_chunk_.store(index, std::memory_order_relaxed);
        failure_ = std::current_exception();
      }
    }
  }
  unfinished_.fetch_sub(1, std::memory_order_acq_rel);
}

void ThreadPool::help() {
  inside_loop = true;
  const std::int64_t begin = wants_events() ? event_clock() : 0;
  std::uint64_t chunks = 0;
  int left = remaining_.load(std::memory_order_relaxed);
  while (left > 0) {
    if (!remaining_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_relaxed))
      continue;
    run_chunk(chunks_ - left);
    ++chunks;
    left = remaining_.load(std::memory_order_relaxed);
  }
  inside_loop = false;
  if (begin != 0 && chunks != 0) [[unlikely]]
    add_event({begin, event_clock(), event_info(EventKind::chunk, "part of a loop", {}), chunks});
}

/// How long a thread waits for others before it parks or yields: less and less while somebody else wants its processor,
/// since what it burns there is missing to the threads that have something to do. Among more threads than processors it
/// is the pool's own threads that push each other aside. Those that ran last have their memory in the caches and had
/// better go on: with parking at once, and one worker woken after the other, 16 threads on 2 processors took 2.1 times
/// as long as 2 for a product of 1024^3, and 1.5 times like this.
class Patience {
 public:
  explicit Patience(bool is_crowded) : is_crowded_(is_crowded) {}
  void begin() { idle_since_ = last_look_ = Clock::now(); }
  /// Work has come while it was waiting.
  void was_right() { spin_ = std::min(kSpin, 2 * spin_ + std::chrono::microseconds(1)); }
  /// Work has come: had it waited as long as it may, it would have been there. Short loops are over when a worker has
  /// been woken, so without this it would be late for ever.
  void was_woken() {
    if (Clock::now() - idle_since_ < kSpin + kPushedAside) was_right();
  }
  bool is_over() {
    const auto now = Clock::now();
    const bool was_pushed_aside = !is_crowded_ && now - last_look_ > kPushedAside;
    last_look_ = now;
    if (was_pushed_aside) spin_ /= 4;
    return was_pushed_aside || now - idle_since_ >= spin_;
  }

 private:
  const bool is_crowded_;
  Clock::duration spin_ = kSpin;
  Clock::time_point idle_since_, last_look_;
};

void ThreadPool::work_loop() {
  event_thread_name = "pool";
  Patience patience(workers_wanted_ + 1 > processors_);
  patience.begin();
  for (unsigned spins = 1; !stop_.load(std::memory_order_relaxed); ++spins) {
    if (remaining_.load(std::memory_order_relaxed) > 0) {
      help();
      patience.was_right(), patience.begin();
    } else if (spins % 32 != 0 || !patience.is_over()) {
      relax();
    } else {
      // Counted before the last look, as the publisher stores before it counts: one of the two sees the other. A call
      // wakes it whether or not the loop is over by then: the next one may come soon.
      const std::uint32_t calls = calls_.load(std::memory_order_seq_cst);
      parked_.fetch_add(1, std::memory_order_seq_cst);
      if (!stop_.load(std::memory_order_seq_cst) && remaining_.load(std::memory_order_seq_cst) == 0)
        calls_.wait(calls, std::memory_order_seq_cst);
      parked_.fetch_sub(1, std::memory_order_relaxed);
      patience.was_woken(), patience.begin();
    }
  }
}

/// As many as there are chunks for: of a large machine's most stay asleep through a short loop. If it is short and
/// loops are far apart, all do.
void ThreadPool::wake_workers(double ns) {
  const int parked = parked_.load(std::memory_order_seq_cst), wanted = chunks_ - 1;
  if (parked == 0 || (ns < kWorthWaking && Clock::now() - last_end_ > kSpin)) return;
  calls_.fetch_add(1, std::memory_order_seq_cst);
  if (wanted >= parked) return calls_.notify_all();
  for (int i = 0; i < wanted; ++i) calls_.notify_one();
}

void ThreadPool::resize(int threads) {
  stop_.store(true, std::memory_order_seq_cst);
  // No thread claims below zero, and none goes to sleep.
  remaining_.store(-1, std::memory_order_seq_cst);
  calls_.fetch_add(1, std::memory_order_seq_cst);
  calls_.notify_all();
  for (std::thread& t : workers_) t.join();
  workers_.clear();
  remaining_.store(0, std::memory_order_relaxed);
  stop_.store(false, std::memory_order_seq_cst);
  processors_ = allowed_processors(), workers_wanted_ = threads - 1;
  try {
    while (static_cast<int>(workers_.size()) + 1 < threads) workers_.emplace_back([this] { work_loop(); });
  } catch (const std::exception&) {
    // The system gives no more threads: go on with those there are, and do not try again at every loop.
    wanted_threads().store(static_cast<int>(workers_.size()) + 1, std::memory_order_relaxed);
  }
}

void ThreadPool::join() {
  Patience patience(workers_wanted_ + 1 > processors_);
  patience.begin();
  for (unsigned spins = 1; unfinished_.load(std::memory_order_acquire) != 0; ++spins) {
    // A thread that was pushed aside in the middle of a chunk may be waiting for this very processor.
    if (spins % 64 == 0 && patience.is_over()) std::this_thread::yield();
    relax();
  }
}

void ThreadPool::raise_failure() {
  if (failure_ == nullptr) return;
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  taken_.store(false, std::memory_order_release);
  std::rethrow_exception(failure);
}

bool ThreadPool::run(std::int64_t begin, std::int64_t end, std::int64_t chunk, Body body, double ns) {
  if (taken_.load(std::memory_order_relaxed) || taken_.exchange(true, std::memory_order_acquire)) return false;
  const int threads = thread_count();
  if (static_cast<int>(workers_.size()) + 1 != threads) [[unlikely]]
    resize(threads);
  body_ = &body;
  begin_ = begin, end_ = end, chunk_ = chunk;
  chunks_ = static_cast<int>((end - begin + chunk - 1) / chunk);
  failed_chunk_.store(chunks_, std::memory_order_relaxed);
  unfinished_.store(chunks_, std::memory_order_relaxed);
  remaining_.store(chunks_, std::memory_order_seq_cst);
  wake_workers(ns);
  help();
  join();
  last_end_ = Clock::now();
  raise_failure();
  taken_.store(false, std::memory_order_release);
  return true;
}

ThreadPool& pool() {
  static std::atomic<ThreadPool*> current = [] {
    at_fork(ForkStage::memory, {{}, {}, [] { current = new ThreadPool; }});  // the threads of the old one are not there
    return new ThreadPool;  // never destroyed: static destructors may still compute
  }();
  return *current.load(std::memory_order_relaxed);
}

}  // namespace

int thread_count() { return wanted_threads().load(std::memory_order_relaxed); }
void set_thread_count(int threads) { wanted_threads().store(std::clamp(threads, 1, 1024), std::memory_order_relaxed); }
bool in_parallel_region() { return inside_loop; }
LoopsOnCaller::LoopsOnCaller() : before_(inside_loop) { inside_loop = true; }
LoopsOnCaller::~LoopsOnCaller() { inside_loop = before_; }

namespace {

void run_parallel(std::int64_t begin, std::int64_t end, double ns_per_item, Body body, std::int64_t granule) {
  const std::int64_t items = end - begin;
  const double total = static_cast<double>(items) * ns_per_item;
  if (inside_loop || total < kSerialNanoseconds || items <= granule) return body(begin, end);
  const int threads = thread_count();
  if (threads == 1) return body(begin, end);
  const auto worthwhile = static_cast<std::int64_t>(std::min(total / kChunkNanoseconds, 1e9));
  const std::int64_t chunks = std::clamp<std::int64_t>(threads * kChunksPerThread, 1, worthwhile);
  std::int64_t chunk = (items + chunks - 1) / chunks;
  chunk = (chunk + granule - 1) / granule * granule;
  if (chunk >= items || !pool().run(begin, end, chunk, body, total)) body(begin, end);
}

}  // namespace

void parallel_for(std::int64_t begin, std::int64_t end, double ns_per_item, Body body, std::int64_t granule) {
  if (begin >= end) return;
  if (stop_of_run == nullptr) [[likely]]
    return run_parallel(begin, end, ns_per_item, body, granule);
  const std::stop_token* const stop = stop_of_run;
  run_parallel(
      begin, end, ns_per_item,
      [&](std::int64_t b, std::int64_t e) {
        check_stop(stop);
        body(b, e);
      },
      granule);
}

}  // namespace fermata

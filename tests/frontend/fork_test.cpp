// A process that is forked while other threads compute: the child computes, whatever they were in the middle of, and
// ends as any other.
#include <fermata/fermata.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "dispatch/library.h"
#include "fermata/inspect.h"
#include "runtime/allocator.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Taken back when a process ends.
FERMATA_LIBRARY(fork_test, m) {
  m.def("twice", [](const Tensor& x) { return x + x; });
}

/// A structure that no plan is known for, and values that other threads want, too.
double compute(const Tensor& shared, int i) {
  Tensor x = ones({64}) + i % 7;
  for (int bit = 0; bit < 12; ++bit) x = (i >> bit & 1) != 0 ? x * 0.5 + 1 : abs(x - 3);
  return sum(x + shared).item<double>() + static_cast<double>(memory_stats().live_bytes % 2);
}

/// What the child does; its status says whether all of it was right.
[[noreturn]] void run_child(const Tensor& shared) {
  alarm(30);  // a child that hangs ends by this signal
  bool good = true;
  for (const Mode mode : {Mode::compiled, Mode::eager}) {
    const ModeGuard guard(mode);
    good = good && sum(ones({1000, 1000}) * 2).item<double>() == 2e6;
    good = good && sum(shared).item<double>() == 128;
    for (int i = 0; i < 20; ++i) good = good && compute(shared, 5000 + i) > 0;
  }
  set_thread_count(3);
  good = good && sum(sqrt(ones({1 << 20}))).item<double>() == 1 << 20;
  std::thread([&] { good = good && sum(ones({100}) + 1).item<double>() == 200; }).join();
  std::exit(good ? 0 : 1);
}

TEST(Fork, TheChildComputesWhileOtherThreadsAreBusy) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer follows no threads of a forked process";
#endif
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "the address sanitizer may be in the middle of an allocation when a process forks, and finds leaks in "
         "what its other threads held";
#endif
  const int threads_before = thread_count();
  set_thread_count(2);
  std::atomic<bool> stop{false};
  const Tensor shared = full({64}, 2).sync();
  std::vector<std::thread> busy;
  for (int t = 0; t < 3; ++t)
    busy.emplace_back([&, t] {
      const ModeGuard guard(t == 2 ? Mode::eager : Mode::compiled);
      for (int i = t; !stop.load(); i += 3) {
        compute(shared, i);
        if (i % 16 == 0) sum(ones({512, 512}) + i).sync();
      }
    });
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) run_child(shared);
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << (WIFSIGNALED(status) ? "it hung" : "it computed something else");
    if (status != 0) break;
  }
  stop = true;
  for (std::thread& t : busy) t.join();
  set_thread_count(threads_before);
}

}  // namespace
}  // namespace fermata

// Tests of runtime/thread_pool: every item runs exactly once whatever the cut, failures reach the caller, and loops may
// be started from anywhere.
#include "runtime/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace fermata {
namespace {

constexpr double kHeavy = 1e5;  // ns per item: always worth splitting

struct ThreadCount {
  explicit ThreadCount(int n) : saved(thread_count()) { set_thread_count(n); }
  ~ThreadCount() { set_thread_count(saved); }
  const int saved;
};

TEST(ThreadPool, RunsEveryItemOnceForAnyCut) {
  for (const int threads : {1, 2, 3, 8}) {
    const ThreadCount count(threads);
    for (const std::int64_t granule : {1, 7, 64}) {
      for (const std::int64_t items : {0, 1, 2, 63, 64, 65, 1000, 4099}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(items));
        std::atomic<int> misaligned{0};
        parallel_for(
            100, 100 + items, kHeavy,
            [&](std::int64_t b, std::int64_t e) {
              if ((b - 100) % granule != 0 || (e != 100 + items && (e - 100) % granule != 0) || b >= e) ++misaligned;
              for (std::int64_t i = b; i < e; ++i) ++seen[static_cast<std::size_t>(i - 100)];
            },
            granule);
        EXPECT_EQ(misaligned, 0) << threads << " threads, granule " << granule << ", " << items << " items";
        for (const auto& s : seen) ASSERT_EQ(s, 1) << threads << " threads, granule " << granule;
      }
    }
  }
}

TEST(ThreadPool, LightWorkStaysOnTheCallerInOneRange) {
  const ThreadCount count(4);
  int ranges = 0;
  parallel_for(0, 1000, 24.0, [&](std::int64_t b, std::int64_t e) {
    ++ranges;
    EXPECT_EQ(b, 0);
    EXPECT_EQ(e, 1000);
    EXPECT_FALSE(in_parallel_region());
  });
  EXPECT_EQ(ranges, 1);
}

TEST(ThreadPool, HeavyWorkReachesSeveralThreads) {
  const ThreadCount count(3);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  // Every range waits until a second thread has shown up, so one thread alone could never finish.
  parallel_for(0, 64, kHeavy, [&](std::int64_t, std::int64_t) {
    EXPECT_TRUE(in_parallel_region());
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        if (threads.size() >= 2) return;
      }
      std::this_thread::yield();
    }
  });
  EXPECT_GE(threads.size(), 2u);
  EXPECT_FALSE(in_parallel_region());
}

TEST(ThreadPool, WakesParkedWorkers) {
  const ThreadCount count(2);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> threads{0};
    parallel_for(0, 2, kHeavy, [&](std::int64_t, std::int64_t) {
      ++threads;
      while (threads < 2) std::this_thread::yield();
    });
    EXPECT_EQ(threads, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // well past the spinning time
  }
}

TEST(ThreadPool, CarriesTheLowestFailureToTheCaller) {
  for (const int threads : {1, 2, 4}) {
    const ThreadCount count(threads);
    for (int round = 0; round < 50; ++round) {
      std::string text;
      try {
        parallel_for(0, 1000, kHeavy, [&](std::int64_t b, std::int64_t e) {
          for (std::int64_t i = b; i < e; ++i)
            if (i % 250 == 137) throw std::out_of_range(std::to_string(i));
        });
      } catch (const std::out_of_range& e) { text = e.what(); }
      EXPECT_EQ(text, "137");
      EXPECT_FALSE(in_parallel_region());
    }
    std::atomic<std::int64_t> sum{0};  // the pool still works
    parallel_for(0, 1000, kHeavy, [&](std::int64_t b, std::int64_t e) { sum += e - b; });
    EXPECT_EQ(sum, 1000);
  }
}

TEST(ThreadPool, NestedLoopsRunOnTheirThread) {
  const ThreadCount count(4);
  std::atomic<std::int64_t> sum{0};
  parallel_for(0, 32, kHeavy, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t i = b; i < e; ++i) {
      const auto outer = std::this_thread::get_id();
      parallel_for(0, 100, kHeavy, [&](std::int64_t nb, std::int64_t ne) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        sum += ne - nb;
      });
    }
  });
  EXPECT_EQ(sum, 3200);
}

TEST(ThreadPool, SeveralThreadsMayStartLoopsAtOnce) {
  const ThreadCount count(3);
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> users;
  for (int u = 0; u < 4; ++u)
    users.emplace_back([&] {
      for (int round = 0; round < 500; ++round)
        parallel_for(0, 64, kHeavy, [&](std::int64_t b, std::int64_t e) { sum += e - b; });
    });
  for (std::thread& t : users) t.join();
  EXPECT_EQ(sum, 4 * 500 * 64);
}

TEST(ThreadPool, TheThreadCountMayChangeAtAnyTime) {
  const ThreadCount count(2);
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 60; ++round)
    parallel_for(0, 64, kHeavy, [&](std::int64_t b, std::int64_t e) {
      set_thread_count(1 + static_cast<int>(b + round) % 4);
      sum += e - b;
    });
  EXPECT_EQ(sum, 60 * 64);
  set_thread_count(-3);
  EXPECT_EQ(thread_count(), 1);
}

}  // namespace
}  // namespace fermata

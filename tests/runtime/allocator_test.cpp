// Tests of runtime/allocator: blocks do not overlap, come back whichever thread frees them, and are accounted for.
#include "runtime/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uint64_t seed() {
  const char* text = std::getenv("FERMATA_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20240611u;
}

struct MemoryLimit {
  explicit MemoryLimit(std::size_t bytes) : saved(set_memory_limit(bytes)) {}
  ~MemoryLimit() { set_memory_limit(saved); }
  const std::size_t saved;
};
struct CacheLimit {
  explicit CacheLimit(std::size_t bytes) : saved(set_cache_limit(bytes)) {}
  ~CacheLimit() { set_cache_limit(saved); }
  const std::size_t saved;
};

TEST(Allocator, ClassesHoldWhatTheyAreAskedFor) {
  for (std::size_t bytes = 0; bytes <= BlockPool::kMaxBytes; bytes += bytes < 4096 ? 1 : 1021) {
    const std::uint32_t c = BlockPool::class_of(bytes);
    ASSERT_LT(c, BlockPool::kClasses) << bytes;
    ASSERT_GE(BlockPool::block_bytes(c), bytes);
    if (c > 0) { ASSERT_LT(BlockPool::block_bytes(c - 1), bytes) << "a smaller class would do"; }
  }
  EXPECT_EQ(BlockPool::block_bytes(BlockPool::class_of(192)), 192u);
  EXPECT_EQ(BlockPool::block_bytes(BlockPool::class_of(256)), 256u);
  EXPECT_EQ(BlockPool::block_bytes(BlockPool::kClasses - 1), BlockPool::kMaxBytes);
}

TEST(Allocator, BlocksAreAlignedAndApart) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{65}, std::size_t{500},
                                  std::size_t{40'000}, kMiB, kMiB + 1, 5 * kMiB}) {
    const Allocation a = allocate_bytes(bytes), b = allocate_bytes(bytes);
    EXPECT_GE(a.bytes, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data) % (bytes > kMiB ? 2 * kMiB : 64), 0u) << bytes;
    std::memset(a.data, 1, a.bytes);
    std::memset(b.data, 2, b.bytes);
    EXPECT_EQ(static_cast<unsigned char*>(a.data)[a.bytes - 1], 1) << bytes;
    EXPECT_EQ(static_cast<unsigned char*>(b.data)[0], 2) << bytes;
    release_bytes(a);
    release_bytes(b);
  }
}

TEST(Allocator, LiveBytesFollowEveryBlock) {
  release_bytes(allocate_bytes(192));
  const std::size_t before = memory_stats().live_bytes;
  std::vector<Allocation> held;
  std::size_t expected = 0;
  for (std::size_t bytes = 1; bytes < 8 * kMiB; bytes = bytes * 3 / 2 + 1)
    for (int i = 0; i < 3; ++i) expected += held.emplace_back(allocate_bytes(bytes)).bytes;
  EXPECT_EQ(memory_stats().live_bytes, before + expected);
  EXPECT_GE(memory_stats().peak_bytes, before + expected);
  for (const Allocation& a : held) release_bytes(a);
  EXPECT_EQ(memory_stats().live_bytes, before);
}

/// Their magazines do not fill a slab: what is left of it goes to smaller ones.
TEST(Allocator, NothingIsLostBetweenSlabs) {
  const std::size_t before = memory_stats().live_bytes;
  const std::uint32_t c = BlockPool::class_of(320);
  std::vector<void*> blocks;
  for (int i = 0; i < 200'000; ++i) blocks.push_back(BlockPool::allocate(c));
  for (void* const block : blocks) BlockPool::release(block, c);
  EXPECT_EQ(memory_stats().live_bytes, before);
}

TEST(Allocator, BuffersAreUsedAgain) {
  if (FERMATA_POOLED == 0) GTEST_SKIP() << "built without pools";
  const Allocation small = allocate_bytes(192);
  release_bytes(small);
  const Allocation again = allocate_bytes(192);
  EXPECT_EQ(again.data, small.data);
  release_bytes(again);

  trim_cache();
  const Allocation large = allocate_bytes(64 * kMiB);
  EXPECT_EQ(large.bytes, 64 * kMiB);
  release_bytes(large);
  const Allocation nearly = allocate_bytes(60 * kMiB), other = allocate_bytes(60 * kMiB);
  EXPECT_EQ(nearly.data, large.data);
  EXPECT_EQ(nearly.bytes, large.bytes) << "given back at the size it was taken with";
  EXPECT_NE(other.data, large.data);
  release_bytes(nearly);
  release_bytes(other);
  const Allocation much_smaller = allocate_bytes(20 * kMiB);
  EXPECT_EQ(much_smaller.bytes, 20 * kMiB);
  release_bytes(much_smaller);
  trim_cache();
}

TEST(Allocator, BytesBehindABufferCanBeRead) {
  if (FERMATA_POOLED == 0) GTEST_SKIP() << "built without pools";
  trim_cache();
  // Many of them: a lucky neighbor of one would not show that anything is missing.
  std::vector<Allocation> held;
  for (int i = 0; i < 40; ++i) held.push_back(allocate_bytes(i % 2 == 0 ? 2 * kMiB : kMiB));
  for (const Allocation& a : held)
    for (std::size_t behind = 0; behind < 4096; behind += 64)
      (void)static_cast<const volatile char*>(a.data)[a.bytes + behind];
  for (const Allocation& a : held) release_bytes(a);
  trim_cache();
}

TEST(Allocator, TheCacheIsBounded) {
  if (FERMATA_POOLED == 0) GTEST_SKIP() << "built without pools";
  trim_cache();
  const std::size_t base = memory_stats().cached_bytes;
  const CacheLimit limit(10 * kMiB);
  std::vector<Allocation> held;
  for (int i = 0; i < 8; ++i) held.push_back(allocate_bytes(4 * kMiB));
  for (int i = 0; i < 64; ++i) held.push_back(allocate_bytes(kMiB));
  for (const Allocation& a : held) release_bytes(a);
  // Two magazines of one block stay with the thread.
  EXPECT_LE(memory_stats().cached_bytes, base + 10 * kMiB + 2 * kMiB);
  EXPECT_GE(memory_stats().cached_bytes, base + 4 * kMiB);
  const std::size_t cached = memory_stats().cached_bytes;
  const std::size_t returned = trim_cache();
  EXPECT_EQ(memory_stats().cached_bytes, cached - returned);
  EXPECT_GE(returned, 4 * kMiB);
}

TEST(Allocator, WhatCannotBeHadIsAnErrorAndNothingIsLost) {
  trim_cache();
  const std::size_t before = memory_stats().live_bytes;
  for (const std::size_t bytes :
       {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / 2, std::size_t{1} << 50}) {
    try {
      allocate_bytes(bytes);
      FAIL() << bytes;
    } catch (const OutOfMemoryError& e) { EXPECT_EQ(e.code(), 3001); }
  }
  EXPECT_EQ(memory_stats().live_bytes, before);
  const Allocation works = allocate_bytes(3 * kMiB);
  release_bytes(works);
}

TEST(Allocator, ReachingTheLimitFirstGivesBackWhatIsCached) {
  if (FERMATA_POOLED == 0) GTEST_SKIP() << "built without pools";
  trim_cache();
  const MemoryStats start = memory_stats();
  const MemoryLimit limit(start.live_bytes + start.cached_bytes + 64 * kMiB);
  release_bytes(allocate_bytes(40 * kMiB));
  const Allocation other = allocate_bytes(60 * kMiB);  // fits only once the 40 MiB have gone
  try {
    allocate_bytes(8 * kMiB);
    ADD_FAILURE() << "above the limit";
  } catch (const OutOfMemoryError& e) {
    const std::string text = e.what();
    EXPECT_EQ(text.substr(0, text.find('\n')), "FM3001 OutOfMemoryError: cannot allocate 8.00 MiB (8388608 bytes)");
    for (const char* part : {"\n  live   ", "\n  cached ", "\n  limit  ", "FERMATA_MEMORY_LIMIT"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  release_bytes(other);
  trim_cache();
}

TEST(Allocator, ThePeakIsTheMostThatWasLive) {
  trim_cache();
  reset_peak_memory();
  const std::size_t start = memory_stats().peak_bytes;
  const Allocation a = allocate_bytes(16 * kMiB), b = allocate_bytes(16 * kMiB);
  release_bytes(a);
  release_bytes(b);
  const Allocation c = allocate_bytes(16 * kMiB);
  EXPECT_EQ(memory_stats().peak_bytes, start + 32 * kMiB);
  reset_peak_memory();
  EXPECT_EQ(memory_stats().peak_bytes, start + 16 * kMiB);
  release_bytes(c);
  trim_cache();
}

TEST(Allocator, OneThreadMayFreeWhatAnotherAllocates) {
  release_bytes(allocate_bytes(64));
  std::mutex mutex;
  std::vector<Allocation> passed;
  const std::size_t before = memory_stats().live_bytes;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed() + t);
      for (int round = 0; round < 4000; ++round) {
        const std::size_t bytes = std::size_t{1} << random() % 17;
        const Allocation a = allocate_bytes(bytes);
        std::memset(a.data, static_cast<int>(bytes % 251), bytes);
        Allocation take{};
        {
          const std::lock_guard lock(mutex);
          passed.push_back(a);
          std::swap(passed[random() % passed.size()], passed.back());
          take = passed.back();
          if (round % 3 != 0)
            passed.pop_back();
          else
            take = {};
        }
        if (take.data == nullptr) continue;
        const auto* data = static_cast<const unsigned char*>(take.data);
        EXPECT_EQ(data[0], data[take.bytes > 64 ? take.bytes / 2 - 1 : 0]) << "seed " << seed();
        release_bytes(take);
      }
    });
  for (std::thread& t : threads) t.join();
  for (const Allocation& a : passed) release_bytes(a);
  EXPECT_NEAR(static_cast<double>(memory_stats().live_bytes), static_cast<double>(before), 128e3);
}

// Runs after the thread's own magazines have gone, and so do the static objects of a program.
struct ReleaseLate {
  Allocation held{};
  ~ReleaseLate() {
    if (held.data == nullptr) return;
    release_bytes(held);
    release_bytes(allocate_bytes(192));
    release_bytes(allocate_bytes(100'000));
  }
};
thread_local ReleaseLate release_late;
ReleaseLate release_at_exit;

TEST(Allocator, WorksWhileAThreadEnds) {
  const std::size_t before = memory_stats().live_bytes;
  std::thread([] {
    release_late.held = {};  // constructed before the first allocation, so destroyed after the magazines
    release_late.held = allocate_bytes(192);
  }).join();
  EXPECT_NEAR(static_cast<double>(memory_stats().live_bytes), static_cast<double>(before), 64e3);
  release_at_exit.held = allocate_bytes(192);
}

}  // namespace
}  // namespace fermata

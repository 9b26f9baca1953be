// Buffers that only pending calls keep: what of them is counted, and when calls are computed to free them.
#include "fermata/retained.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <thread>

#include "fermata/fermata.h"
#include "runtime/allocator.h"
#include "tests/ir/seed.h"

namespace fermata {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr const char* kReason = "the limit on bytes that pending calls retain";

std::uint64_t early_syncs() {
  for (const auto& [reason, count] : stats().sync_reasons)
    if (reason == kReason) return count;
  return 0;
}

class Retained : public ::testing::Test {
 protected:
  ~Retained() override {
    set_retained_limit(limit_);
    set_compile_policy(policy_);
  }
  /// A tensor of one MiB that has been computed.
  static Tensor buffer(double value = 1) { return full({512, 512}, value).sync(); }

  std::size_t limit_ = set_retained_limit(0);
  CompilePolicy policy_ = set_compile_policy(CompilePolicy::second_sight);
  ModeGuard mode_{Mode::compiled};
  const std::size_t before_ = retained_bytes();
};

TEST_F(Retained, WhatAProgramNamesDoesNotCount) {
  Tensor x = buffer();
  Tensor y = x + 1;
  EXPECT_EQ(retained_bytes(), before_);
  x = Tensor();
  EXPECT_EQ(retained_bytes(), before_ + kMiB);
  y.sync();
  EXPECT_EQ(retained_bytes(), before_);
}

TEST_F(Retained, ATemporaryCountsFromTheStart) {
  Tensor y = sum(buffer());
  EXPECT_EQ(retained_bytes(), before_ + kMiB);
  y = Tensor();
  EXPECT_EQ(retained_bytes(), before_);
}

TEST_F(Retained, ABufferCountsOnceWhateverReadsIt) {
  Tensor x = buffer();
  const Tensor y = x * x, z = sum(x), row = x.slice(0, 0, 1).sync() * 2;
  x = Tensor();
  EXPECT_EQ(retained_bytes(), before_ + kMiB);
  sync({y, z, row});
  EXPECT_EQ(retained_bytes(), before_);
}

TEST_F(Retained, AResultThatOtherCallsReadCountsWhenItsNameGoes) {
  Tensor x = ones({512, 512}) + 1;
  Tensor y = sum(x);
  x.sync();
  x = Tensor();
  EXPECT_EQ(retained_bytes(), before_ + kMiB);
  EXPECT_EQ(y.item<float>(), 2 * 512 * 512);
  EXPECT_EQ(retained_bytes(), before_);
}

TEST_F(Retained, SmallBuffersDoNotCount) {
  Tensor y = ones({64}).sync() + 1;
  EXPECT_EQ(retained_bytes(), before_);
}

TEST_F(Retained, WhatTheTapeKeepsDoesNotCount) {
  Tensor w = buffer(), y;
  w.requires_grad_();
  {
    const Tensor x = buffer(2);
    y = sum(w * x);
  }
  EXPECT_EQ(retained_bytes(), before_);
  y.backward();
  EXPECT_EQ(w.grad().slice(0, 0, 1).slice(1, 0, 1).item<float>(), 2);
}

/// What computing everything frees, beside what the results take, is what was counted before.
TEST_F(Retained, TheCountIsExactOverRandomPrograms) {
  constexpr std::size_t kBytes = 2 * kMiB;
  const auto big = [](double value) { return full({1024, 512}, value).sync(); };
  const std::uint64_t seed = testing::test_seed(20261123);
  for (std::uint64_t program = seed; program < seed + 60; ++program) {
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(program));
    std::mt19937_64 random(program);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<Tensor> named;
    for (int i = 0; i < 4; ++i) named.push_back(big(i));
    for (int call = 0; call < 40; ++call) {
      const Tensor x = named[below(named.size())], y = named[below(named.size())];
      switch (below(9)) {
        case 0: named.push_back(x + y); break;
        case 1: named.push_back(exp(x) * 0.5); break;
        case 2: named.push_back(big(2) * y); break;
        case 3: named.push_back(x * mean(y)); break;
        case 4: named.push_back(flip(x, 0) - y); break;
        case 5: x.sync(); break;
        case 6: named.push_back(x.copy()), named.back() += y; break;
        default:
          if (named.size() > 2) named.erase(named.begin() + static_cast<std::ptrdiff_t>(below(named.size())));
      }
    }
    std::vector<Node*> pending;
    for (const Tensor& t : named)
      if (t.pending()) pending.push_back(t.node());
    const std::size_t kept = retained_bytes() - before_, live = memory_stats().live_bytes;
    sync(named);
    std::set<const Storage*> results;
    for (const Node* const n : pending) results.insert(n->storage.load());
    const double freed =
        static_cast<double>(live + results.size() * kBytes) - static_cast<double>(memory_stats().live_bytes);
    EXPECT_EQ(static_cast<double>(kept / kBytes), std::round(freed / kBytes));
    EXPECT_EQ(kept % kBytes, 0u);
    EXPECT_EQ(retained_bytes(), before_);
  }
}

TEST_F(Retained, ALoopThatAddsUpIsBounded) {
  set_retained_limit(before_ + 16 * kMiB);
  reset_peak_memory();
  const std::size_t before = memory_stats().peak_bytes;
  const std::uint64_t syncs = early_syncs(), misses = stats().plan_misses;
  Tensor total = zeros({512, 512});
  for (int i = 0; i < 400; ++i) {
    total = total + buffer(i % 3) * 2;
    EXPECT_LE(retained_bytes(), before_ + 16 * kMiB) << i;
  }
  EXPECT_LE(memory_stats().peak_bytes, before + 48 * kMiB);
  EXPECT_GE(early_syncs(), syncs + 20);
  EXPECT_LE(stats().plan_misses, misses + 8);  // one plan serves the loop
  EXPECT_EQ(total.slice(0, 0, 1).slice(1, 0, 1).item<float>(), 2 * (133 * 3));
}

TEST_F(Retained, ResultsThatAreKeptForLaterAreBounded) {
  set_retained_limit(before_ + 16 * kMiB);
  const std::uint64_t misses = stats().plan_misses;
  std::vector<Tensor> losses;
  for (int i = 0; i < 100; ++i) {
    const Tensor x = buffer(i);
    losses.push_back(mean((x - 1) * (x - 1)));
    EXPECT_LE(retained_bytes(), before_ + 16 * kMiB) << i;
  }
  EXPECT_LE(stats().plan_misses, misses + 8);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double x = static_cast<double>(i) - 1;
    EXPECT_EQ(losses[i].item<double>(), x * x);
  }
}

TEST_F(Retained, BuffersThatSeveralCallsKeepAreBounded) {
  set_retained_limit(before_ + 16 * kMiB);
  std::vector<Tensor> losses;
  Tensor total = zeros({512, 512});
  for (int i = 0; i < 100; ++i) {
    const Tensor x = buffer(i);
    losses.push_back(mean((x - 1) * (x - 1)));
    total += x;
    EXPECT_LE(retained_bytes(), before_ + 16 * kMiB) << i;
  }
  EXPECT_EQ(losses[99].item<double>(), 98 * 98);
  EXPECT_EQ(total.slice(0, 0, 1).slice(1, 0, 1).item<double>(), 4950);
}

TEST_F(Retained, CallsWhoseResultsTakeAsMuchStayPending) {
  set_retained_limit(before_ + 8 * kMiB);
  const std::uint64_t syncs = early_syncs();
  std::vector<Tensor> results;
  for (int i = 0; i < 32; ++i) results.push_back(buffer(i) + 1);
  EXPECT_EQ(early_syncs(), syncs);
  EXPECT_TRUE(results.front().pending());
  EXPECT_EQ(retained_bytes(), before_ + 32 * kMiB);
  sync(results);
  EXPECT_EQ(retained_bytes(), before_);
}

TEST_F(Retained, AnyLimitGivesTheSameNumbers) {
  const auto run = [](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Tensor> named{buffer(0.5), buffer(0.25)};
    for (int call = 0; call < 60; ++call) {
      const Tensor x = named[random() % named.size()], y = named[random() % named.size()];
      switch (random() % 5) {
        case 0: named.push_back(tanh(x + y)); break;
        case 1: named.push_back(x * buffer(0.5) - y); break;
        case 2: named.push_back(x * sum(y, {1}, true)); break;
        case 3: named.push_back(maximum(x.T(), y)); break;
        default:
          if (named.size() > 2) named.erase(named.begin() + static_cast<std::ptrdiff_t>(random() % named.size()));
      }
    }
    std::vector<float> values;
    for (const Tensor& t : named)
      for (const float v : t.slice(0, 0, 2).to_vector<float>()) values.push_back(v);
    return values;
  };
  const std::uint64_t seed = testing::test_seed(7);
  for (std::uint64_t program = seed; program < seed + 12; ++program) {
    set_retained_limit(0);
    const std::vector<float> expected = run(program);
    for (const std::size_t limit : {std::size_t{1}, 3 * kMiB, 20 * kMiB}) {
      set_retained_limit(before_ + limit);
      EXPECT_EQ(run(program), expected) << program << ", " << limit;
    }
  }
}

TEST_F(Retained, ThreadsAreBoundedTogether) {
  set_retained_limit(before_ + 32 * kMiB);
  std::vector<float> sums(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < sums.size(); ++t)
      threads.emplace_back([&, t] {
        Tensor total = zeros({512, 512});
        for (int i = 0; i < 100; ++i) total += buffer(static_cast<double>(t));
        sums[t] = total.slice(0, 0, 1).slice(1, 0, 1).item<float>();
      });
  }
  for (std::size_t t = 0; t < sums.size(); ++t) EXPECT_EQ(sums[t], 100.f * static_cast<float>(t));
  EXPECT_EQ(retained_bytes(), before_);
}

TEST_F(Retained, ChainsRecordAsTheyDidWithoutALimit) {
  set_retained_limit(1);
  const std::uint64_t syncs = early_syncs();
  const Tensor x = buffer();
  Tensor y = x;
  for (int i = 0; i < 100; ++i) y = y * 0.5 + 1;
  EXPECT_EQ(early_syncs(), syncs);
  EXPECT_TRUE(y.pending());
}

}  // namespace
}  // namespace fermata

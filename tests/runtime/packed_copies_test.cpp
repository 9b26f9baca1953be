// Tests of the packed copies of a buffer (runtime/prepacked_weights.h): when one is stored, and when it is dropped.
#include "runtime/prepacked_weights.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/memory_accounts.h"

namespace fermata {
namespace {

constexpr std::byte kLayout{}, kOther{};

class PackedCopiesTest : public ::testing::Test {
 protected:
  PackedCopiesTest() { PrepackedWeights::trim(), start_ = PrepackedWeights::bytes(); }
  ~PackedCopiesTest() override { set_packed_limit(limit_); }
  static StoragePtr buffer(int value) {
    StoragePtr made(Storage::allocate(1000));
    std::memset(made->data, value, 1000);
    return made;
  }
  /// A copy of the buffer; counts how often one is made.
  StoragePtr find(Storage* of, std::int64_t number = 0, const void* layout = &kLayout, std::size_t bytes = 1000) {
    return PrepackedWeights::find(of, {layout, of->data, {number}}, bytes,
                                  [&](std::byte* to) { std::memcpy(to, of->data, 1000), ++made_; });
  }
  std::size_t kept() const { return PrepackedWeights::bytes() - start_; }

  const std::size_t limit_ = set_packed_limit(1 << 20);
  std::size_t start_ = 0;
  std::atomic<int> made_ = 0;
};

TEST_F(PackedCopiesTest, IsMadeAtTheSecondSightOfAKey) {
  const StoragePtr x = buffer(7);
  EXPECT_EQ(find(x.get()), nullptr);
  EXPECT_EQ(find(x.get(), 1), nullptr);
  EXPECT_EQ(find(x.get(), 0, &kOther), nullptr);
  EXPECT_EQ(made_, 0);
  const StoragePtr copy = find(x.get());
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(std::memcmp(copy->data, x->data, 1000), 0);
  EXPECT_EQ(find(x.get()).get(), copy.get());
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(kept(), 1000u);
  EXPECT_NE(find(x.get(), 1).get(), copy.get());
  EXPECT_EQ(kept(), 2000u);
}

TEST_F(PackedCopiesTest, GoesWithItsBufferButNotUnderItsReader) {
  StoragePtr x = buffer(7);
  find(x.get());
  const StoragePtr copy = find(x.get());
  x.reset();
  EXPECT_EQ(kept(), 0u);
  EXPECT_EQ(static_cast<const char*>(copy->data)[999], 7);
}

TEST_F(PackedCopiesTest, NotWhereElementsMayChange) {
  const StoragePtr x = buffer(1);
  find(x.get());
  ASSERT_NE(find(x.get()), nullptr);
  x->forget_packed();  // before a result is written there
  EXPECT_EQ(kept(), 0u);
  std::memset(x->data, 2, 1000);
  EXPECT_EQ(find(x.get()), nullptr);
  const StoragePtr again = find(x.get());
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(static_cast<const char*>(again->data)[0], 2);
  x->show_to_caller();
  EXPECT_EQ(kept(), 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(find(x.get()), nullptr);

  std::vector<std::byte> foreign(1000);
  const StoragePtr theirs(Storage::adopt(
      foreign.data(), 1000, [](Storage*) {}, nullptr));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(find(theirs.get()), nullptr);
  const StoragePtr other = buffer(3);  // an operand that was copied elsewhere
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(PrepackedWeights::find(other.get(), {&kLayout, foreign.data(), {}}, 8, [](std::byte*) { FAIL(); }),
              nullptr);
  EXPECT_EQ(PrepackedWeights::find(nullptr, {&kLayout, foreign.data(), {}}, 8, [](std::byte*) { FAIL(); }), nullptr);
}

TEST_F(PackedCopiesTest, TheLimitHoldsForAllTogether) {
  set_packed_limit(start_ + 2500);
  std::vector<StoragePtr> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(buffer(i)), find(all.back().get());
    EXPECT_EQ(find(all.back().get()) != nullptr, i < 2) << i;
  }
  EXPECT_EQ(kept(), 2000u);
  all[0].reset();
  EXPECT_NE(find(all[3].get()), nullptr);
  set_packed_limit(0);
  EXPECT_EQ(kept(), 0u);
  EXPECT_EQ(find(all[1].get()), nullptr);
}

TEST_F(PackedCopiesTest, ABufferHasFew) {
  const StoragePtr x = buffer(1);
  for (std::int64_t number = 0; number < 100; ++number) find(x.get(), number), find(x.get(), number);
  EXPECT_EQ(kept(), 8000u);
  EXPECT_EQ(made_, 100);
  find(x.get(), 99);
  EXPECT_EQ(made_, 100);
  EXPECT_EQ(find(x.get(), 0), nullptr);
}

TEST_F(PackedCopiesTest, AreGivenBackWhenMemoryIsShort) {
  const StoragePtr x = buffer(1);
  find(x.get());
  ASSERT_NE(find(x.get()), nullptr);
  trim_cache();
  EXPECT_EQ(kept(), 0u);
  EXPECT_NE(find(x.get()), nullptr);  // it was seen before
  EXPECT_EQ(made_, 2);

  const std::size_t before = set_memory_limit(memory_accounts().reserved.load());
  set_packed_limit(std::size_t{1} << 40);
  find(x.get(), 1, &kLayout, std::size_t{64} << 20);
  EXPECT_EQ(find(x.get(), 1, &kLayout, std::size_t{64} << 20), nullptr) << "there is no memory for it";
  set_memory_limit(before);
  EXPECT_EQ(made_, 2);
}

TEST_F(PackedCopiesTest, AnErrorWhilePackingLeavesNothing) {
  const StoragePtr x = buffer(1);
  const PackedKey key{&kLayout, x->data, {}};
  const auto fail = [](std::byte*) { throw std::runtime_error("no"); };
  EXPECT_EQ(PrepackedWeights::find(x.get(), key, 1000, fail), nullptr);
  EXPECT_THROW(PrepackedWeights::find(x.get(), key, 1000, fail), std::runtime_error);
  EXPECT_EQ(kept(), 0u);
  EXPECT_NE(PrepackedWeights::find(x.get(), key, 1000, [](std::byte*) {}), nullptr);
}

TEST_F(PackedCopiesTest, ThreadsGetTheSameOne) {
  const StoragePtr x = buffer(5);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const StoragePtr own = buffer(i % 100);
        for (int sight = 0; sight < 3; ++sight) {
          const StoragePtr mine = find(own.get());
          EXPECT_TRUE((mine != nullptr) == (sight > 0)) << sight;
          const StoragePtr shared = find(x.get());
          EXPECT_TRUE(shared == nullptr || static_cast<const char*>(shared->data)[500] == 5);
        }
        if (i % 50 == 0) PrepackedWeights::trim();
      }
    });
  threads.clear();
  x->forget_packed();
  EXPECT_EQ(kept(), 0u);
}

}  // namespace
}  // namespace fermata

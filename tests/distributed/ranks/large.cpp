// Calls of more elements than an int counts. They take gigabytes, so they run only where FERMATA_LARGE_ELEMENTS says
// how many elements a tensor has: 2147487744 is 2^31 and a page. Two ranks then need twice that, and half of it, each.
#include <gtest/gtest.h>

#include <algorithm>

#include "fermata/fermata.h"
#include "runtime/environment.h"

namespace fermata {
namespace {

using distributed::world;

class RanksOnlyLarge : public ::testing::Test {
 protected:
  void SetUp() override {
    count_ = static_cast<std::int64_t>(environment_number("FERMATA_LARGE_ELEMENTS", 0));
    if (count_ == 0) GTEST_SKIP() << "FERMATA_LARGE_ELEMENTS is not set";
    count_ -= count_ % (4 * world().size());
  }
  /// Whether all elements of [begin, end) are `value`, a part at a time.
  static bool are_all(const Tensor& x, std::int64_t begin, std::int64_t end, int value) {
    constexpr std::int64_t kPart = std::int64_t{1} << 26;
    bool same = true;
    for (std::int64_t at = begin; at < end; at += kPart)
      same = same && all(x.slice(0, at, std::min(at + kPart, end)) == value).item<bool>();
    return same;
  }
  static int own_value() { return static_cast<int>(world().rank()) + 3; }
  static int largest() { return static_cast<int>(world().size()) + 2; }

  std::int64_t count_ = 0;
};

TEST_F(RanksOnlyLarge, AllReduceOfBytes) {
  const Tensor x = full({count_}, own_value(), DType::u8).sync();
  const Tensor y = distributed::all_reduce(x, distributed::Reduction::max).sync();
  EXPECT_TRUE(are_all(y, 0, count_, largest()));
}

TEST_F(RanksOnlyLarge, AllGatherOfBytes) {
  const std::int64_t part = count_ / world().size();
  const Tensor y = distributed::all_gather(full({part}, own_value(), DType::u8).sync()).sync();
  ASSERT_EQ(y.size(0), count_);
  for (std::int64_t r = 0; r < world().size(); ++r)
    EXPECT_TRUE(are_all(y, r * part, (r + 1) * part, static_cast<int>(r) + 3)) << r;
}

TEST_F(RanksOnlyLarge, ReduceScatterOfBytes) {
  const Tensor x = full({count_}, own_value(), DType::u8).sync();
  const Tensor y = distributed::reduce_scatter(x, 0, distributed::Reduction::max).sync();
  ASSERT_EQ(y.size(0), count_ / world().size());
  EXPECT_TRUE(are_all(y, 0, y.size(0), largest()));
}

TEST_F(RanksOnlyLarge, SendAndReceiveBytes) {
  const std::int64_t last = world().size() - 1;
  if (world().rank() == 0) distributed::send(full({count_}, 7, DType::u8).sync(), last);
  if (world().rank() == last) {
    const Tensor y = distributed::receive({count_}, DType::u8, 0).sync();
    EXPECT_TRUE(are_all(y, 0, count_, 7));
  }
  distributed::barrier();
}

/// As many bytes in elements of four.
TEST_F(RanksOnlyLarge, AllReduceOfFloats) {
  const std::int64_t count = count_ / 4;
  const Tensor x = full({count}, own_value(), DType::f32).sync();
  const Tensor y = distributed::all_reduce(x).sync();
  int sum = 0;
  for (int r = 0; r < static_cast<int>(world().size()); ++r) sum += r + 3;
  EXPECT_TRUE(are_all(y, 0, count, sum));
}

}  // namespace
}  // namespace fermata

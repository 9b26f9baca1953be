// Kernels that read elements a few places apart: by vectors, which end where the memory does.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "fermata/fermata.h"
#include "fermata/host_view.h"
#include "tests/frontend/fast_code.h"
#include "tests/guarded_memory.h"

namespace fermata {
namespace {

template <class T> class StridedLoads : public ::testing::Test { const testing::FastCode fast_code_; };
using ElementTypes = ::testing::Types<std::int8_t, std::int16_t, float, double>;
TYPED_TEST_SUITE(StridedLoads, ElementTypes);

TYPED_TEST(StridedLoads, ReadNothingBehindTheLastElement) {
  GuardedMemory memory(1 << 16);
  for (const std::int64_t step : {1, 2, 3, 4, 5, -1, -2, -3, -4, -5})
    for (const std::int64_t count : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 255, 257, 700}) {
      const std::int64_t apart = std::abs(step);
      const std::span<TypeParam> elements =
          memory.elements<TypeParam>(static_cast<std::size_t>((count - 1) * apart + 1), step > 0);
      for (std::size_t i = 0; i < elements.size(); ++i)
        elements[i] = static_cast<TypeParam>(static_cast<std::int8_t>(i * 7 + i / 13));
      const Tensor all = borrow(std::span<const TypeParam>(elements), {static_cast<std::int64_t>(elements.size())});
      const Tensor x = all.index({Slice(kNone, kNone, step)});
      ASSERT_EQ(x.size(0), count);
      const ModeGuard guard(Mode::compiled);
      const std::vector<double> got = (x * 2 - 1).template to_vector<double>();
      const double total = sum(x.astype(DType::f64) * 3).template item<double>();
      double wanted_total = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t at = step > 0 ? i * step : (count - 1) * apart + i * step;
        const double element = static_cast<double>(elements[static_cast<std::size_t>(at)]);
        wanted_total += 3 * element;
        const auto wanted = static_cast<TypeParam>(static_cast<int>(element) * 2 - 1);  // of bytes: modulo 256
        ASSERT_EQ(got[static_cast<std::size_t>(i)], static_cast<double>(wanted))
            << "element " << i << " of " << count << ", step " << step;
      }
      ASSERT_EQ(total, wanted_total) << count << " elements, step " << step;
    }
}

/// Along their rows they step by one element, along their columns by a few: tiles of them are turned on the stack.
using Windows = StridedLoads<float>;
TEST_F(Windows, OfAStepAndADilationAreReadWhereTheyAre) {
  const Tensor x = sin(arange(0, 3000) * 0.37).sync(), a = cos(arange(0, 200 * 300) * 0.11).reshape({200, 300}).sync();
  for (const std::int64_t dilation : {1, 2, 3, 4, 8}) {
    const Tensor windows = slice(unfold(x, 0, 300, 1, dilation), 0, 0, 200);
    const auto program = [&] { return (windows * 2 - abs(windows) * a).to_vector<float>(); };
    const std::vector<float> wanted = [&] {
      const ModeGuard guard(Mode::eager);
      return program();
    }();
    const ModeGuard guard(Mode::compiled);
    EXPECT_EQ(program(), wanted) << "dilation " << dilation;
    EXPECT_EQ(program(), wanted) << "dilation " << dilation << ", in wide code";
  }
}

}  // namespace
}  // namespace fermata

// Short rows near each other: shuffles of every instruction set against a loop over the elements, in memory that ends
// where the rows do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "codegen_cpu/irregular/near_rows.h"
#include "tests/guarded_memory.h"

namespace fermata {
namespace {

struct Named {
  const char* name;
  const NearRowsKernels* kernels;
};
std::vector<Named> all_kernels() {
  std::vector<Named> all{{"baseline", &kNearRowsBaseline}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v3")) all.push_back({"avx2", &kNearRowsAvx2});
  if (__builtin_cpu_supports("x86-64-v4")) all.push_back({"avx512", &kNearRowsAvx512});
#endif
  return all;
}

class NearRowsCopies : public ::testing::Test {
 protected:
  /// Whether there was a shuffle for them.
  bool check(const Named& set, const NearRows& rows, std::int64_t count) {
    const std::int64_t element = rows.element_bytes, along = (rows.length - 1) * rows.inner_step,
                       across = (count - 1) * rows.step;
    const std::int64_t below = -(std::min<std::int64_t>(along, 0) + std::min<std::int64_t>(across, 0));
    const std::int64_t above = std::max<std::int64_t>(along, 0) + std::max<std::int64_t>(across, 0);
    const auto bytes = static_cast<std::size_t>((below + above + 1) * element);
    const auto written = static_cast<std::size_t>(count * rows.length * element);
    NearRowsOrder order;
    set.kernels->find_order(order, rows);
    for (const bool at_end : {false, true}) {
      const auto from = source_.elements<std::uint8_t>(bytes, at_end),
                 to = target_.elements<std::uint8_t>(written, at_end);
      for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
      std::memset(to.data(), 255, written);
      const std::uint8_t* const first = from.data() + below * element;
      set.kernels->copy(order, to.data(), first, count);
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < rows.length; ++j)
          if (std::memcmp(to.data() + (i * rows.length + j) * element,
                          first + (i * rows.step + j * rows.inner_step) * element,
                          static_cast<std::size_t>(element)) != 0) {
            ADD_FAILURE() << set.name << ": element " << j << " of row " << i << " of " << count << ", " << element
                          << " bytes, " << rows.length << " in a row, steps " << rows.step << " and "
                          << rows.inner_step;
            return false;
          }
    }
    return order.vector_bytes != 0;
  }

 private:
  GuardedMemory source_{1 << 16}, target_{1 << 15};
};

TEST_F(NearRowsCopies, AreTheElements) {
  for (const Named& set : all_kernels())
    for (const std::int64_t element : {1, 2, 4, 8})
      for (const std::int64_t length : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 40})
        for (const std::int64_t inner : {1, -1, 2, 0})
          for (const std::int64_t step : {-9, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 8, 30, -30})
            for (const std::int64_t count : {1, 2, 3, 5, 16, 21, 33, 67}) {
              check(set, {.element_bytes = element, .length = length, .step = step, .inner_step = inner}, count);
              if (HasFailure()) return;
            }
}

TEST_F(NearRowsCopies, OfPixelsAreShuffled) {
  for (const Named& set : all_kernels()) {
    if (set.kernels == &kNearRowsBaseline) continue;
    for (const NearRows& rows :
         {NearRows{1, 3, -3, 1}, NearRows{1, 3, 4, 1}, NearRows{1, 3, 3, -1}, NearRows{4, 3, 3, -1}})
      EXPECT_TRUE(check(set, rows, 100)) << set.name;
  }
}

}  // namespace
}  // namespace fermata

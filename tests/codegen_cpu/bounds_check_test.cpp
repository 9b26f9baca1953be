// Checks of generated code: what a launch reaches, and that code which leaves it ends the process.
#include "runtime/bounds_check.h"

#include <gtest/gtest.h>

#include <random>

#include "codegen_cpu/jit_compiler.h"
#include "codegen_cpu/jit_executable.h"
#include "codegen_cpu/loader.h"
#include "tests/ir/kernels.h"
#include "tests/ir/seed.h"

namespace fermata {
namespace {

/// Every point of a launch, one by one.
Reach walked(const LaunchPoints& points, const std::vector<std::int64_t>& strides) {
  const std::size_t last = points.sizes.size() - 1;
  const bool by_rows = (points.reduced >> last & 1) != 0;
  std::int64_t least = 0, most = 0;
  bool any = false;
  std::vector<std::int64_t> at(points.sizes.size(), 0);
  const auto visit = [&](const auto& self, std::size_t axis, std::int64_t row, std::int64_t offset) -> void {
    if (axis == points.sizes.size()) {
      if (row < points.row_begin || row >= points.row_end) return;
      if (!by_rows && (at[last] < points.column_begin || at[last] >= points.column_end)) return;
      least = any ? std::min(least, offset) : offset, most = any ? std::max(most, offset) : offset, any = true;
      return;
    }
    const bool is_row = (points.reduced >> axis & 1) == 0 && (by_rows || axis != last);
    for (at[axis] = 0; at[axis] < points.sizes[axis]; ++at[axis])
      self(self, axis + 1, is_row ? row * points.sizes[axis] + at[axis] : row, offset + at[axis] * strides[axis]);
  };
  visit(visit, 0, 0, 0);
  return any ? Reach{4 * least, 4 * (most + 1)} : Reach{};
}

TEST(BoundsCheck, ALaunchReachesWhatItsPointsDo) {
  std::mt19937_64 random(testing::test_seed(5));
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  for (int i = 0; i < 2000; ++i) {
    const auto rank = static_cast<std::size_t>(1 + below(4));
    std::vector<std::int64_t> sizes(rank), strides(rank);
    for (std::size_t axis = 0; axis < rank; ++axis) sizes[axis] = 1 + below(4), strides[axis] = below(9) - 4;
    const auto reduced = static_cast<std::uint16_t>(below(1ull << rank));
    std::int64_t rows = 1;
    const bool by_rows = (reduced >> (rank - 1) & 1) != 0;
    for (std::size_t axis = 0; axis < rank; ++axis)
      if ((reduced >> axis & 1) == 0 && (by_rows || axis + 1 != rank)) rows *= sizes[axis];
    LaunchPoints points{sizes, reduced, below(static_cast<std::uint64_t>(rows)), 0, 0, 0};
    points.row_end = points.row_begin + 1 + below(static_cast<std::uint64_t>(rows - points.row_begin));
    points.column_begin = below(static_cast<std::uint64_t>(sizes.back()));
    points.column_end = points.column_begin + 1 + below(static_cast<std::uint64_t>(sizes.back() - points.column_begin));
    const Reach got = reach_of(points, strides, 4), want = walked(points, strides);
    EXPECT_EQ(got.begin, want.begin) << i;
    EXPECT_EQ(got.end, want.end) << i;
  }
}

TEST(BoundsCheck, PointsThatTheSizesDoNotHaveAreNotReached) {
  const std::vector<std::int64_t> sizes{3, 8}, strides{8, 1};
  const Reach reach = reach_of({sizes, 0, 0, 5, 0, 64}, strides, 4);
  EXPECT_EQ(reach.begin, 0);
  EXPECT_EQ(reach.end, 3 * 8 * 4);
  const std::vector<std::int64_t> empty{3, 0};
  EXPECT_EQ(reach_of({empty, 0, 0, 3, 0, 0}, strides, 4).end, 0);
}

class CheckedCode : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
  ~CheckedCode() override { set_bounds_checks(before_); }

  const bool before_ = set_bounds_checks(true);
};

/// x + row of y, for rows of 100 columns.
TEST_F(CheckedCode, EndsTheProcessOutsideOfItsOperands) {
  testing::KernelBuilder builder;
  builder.kernel.rank = 2;
  const ValueId x = builder.input(DType::f32, 0b11, true), y = builder.input(DType::f32, 0b10, true);
  builder.store(0b11, builder.op(Prim::add, DType::f32, x, y), true);
  std::vector<float> left(1000, 1), right(1000, 2), result(1000, 0);
  for (const std::string_view target : {"avx2", "avx512"}) {
    if (target == "avx512" && JitCompiler::target() != "avx512") continue;
    const auto executable = JitCompiler::instance().compile(builder.kernel, nullptr, target);
    testing::Launch all{builder.kernel, {5, 100}};
    all.bind(left.data(), {100, 1}).bind(right.data(), {0, 1}).bind(result.data(), {100, 1});
    KernelLaunch launch = all.whole();
    executable->launch(launch);
    EXPECT_EQ(result[499], 3);
    EXPECT_EQ(result[500], 0);
    launch.row_end = 6;
    EXPECT_DEATH(
        executable->launch(launch),
        "out-of-bounds access by a kernel: it loads bytes \\[2000, 20[0-9]*\\) of access 0, f32; the launch may access "
        "\\[0, 2000\\)");
    launch = all.whole();
    launch.column_end = 128;
    EXPECT_DEATH(executable->launch(launch), "of access [01], f32; the launch may access");
  }
}

/// The results of several blocks are merged in one more turn of the loop over blocks, which has nothing to read.
TEST_F(CheckedCode, NothingIsReadPastTheLastBlockOfAReduction) {
  testing::KernelBuilder builder;
  builder.kernel.rank = 2, builder.kernel.reduced = 0b11;
  const ValueId scale = builder.input(DType::f32, 0b01), x = builder.input(DType::f32, 0b11, true);
  builder.store(0, builder.reduce(Op::sum, builder.op(Prim::mul, DType::f32, x, scale)));
  const std::vector<float> scales{1, 2, 3}, numbers(3 * 40, 0.5f);
  for (const std::string_view target : {"avx2", "avx512"}) {
    if (target == "avx512" && JitCompiler::target() != "avx512") continue;
    const auto executable = JitCompiler::instance().compile(builder.kernel, nullptr, target);
    float result = 0;
    testing::Launch all{builder.kernel, {3, 40}};
    all.bind(scales.data(), {1, 0}).bind(numbers.data(), {40, 1}).bind(&result, {0, 0});
    executable->launch(all.whole());
    EXPECT_EQ(result, 120);
  }
}

TEST_F(CheckedCode, ADamagedKernelMakesAnObjectUnusable) {
  const Kernel kernel = testing::map_kernel();
  const std::string bytes = serialize(kernel);
  std::string object = JitCompiler::instance().object_for(kernel);
  const std::size_t at = object.find(bytes);
  ASSERT_NE(at, object.npos);
  object[at + bytes.size() / 2] ^= 1;
  try {
    executable_from_object(object);
    FAIL();
  } catch (const ObjectError& error) {
    EXPECT_STREQ(error.what(), "object: the kernel description to check against is damaged");
  }
}

TEST_F(CheckedCode, EndsTheProcessWhereALaunchLeavesABuffer) {
  const std::vector<float> buffer(10);
  check_in_buffer("fused3", 1, buffer.data() + 2, {-8, 32}, buffer.data(), 40);
  EXPECT_DEATH(check_in_buffer("fused3", 1, buffer.data() + 2, {-8, 36}, buffer.data(), 40),
               "fused3 is out of bounds: access 1 reaches bytes \\[0, 44\\) of 40");
}

}  // namespace
}  // namespace fermata

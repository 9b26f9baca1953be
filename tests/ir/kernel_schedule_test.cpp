// What runs when: stages, row level, slices, and where stores go.
#include <gtest/gtest.h>

#include "kernels.h"

namespace fermata {
namespace {

using testing::KernelBuilder;
using Values = std::vector<ValueId>;
using Indices = std::vector<std::uint16_t>;

TEST(KernelSchedule, MapHasOneStageWithInvariantsInFront) {
  const Kernel kernel = testing::map_kernel();
  const KernelSchedule plan = schedule(kernel);
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_EQ(plan.row_prologue, (Values{1, 3})) << "the scalar and the constant";
  EXPECT_EQ(plan.stages[0].element_values, (Values{0, 2, 4}));
  EXPECT_EQ(plan.stages[0].element_stores, Indices{0});
  EXPECT_TRUE(plan.stages[0].row_values.empty());
}

TEST(KernelSchedule, MapTreatsOuterAxesAsElementsAndNoAxesAsInvariant) {
  KernelBuilder b;
  b.kernel.rank = 2;
  const ValueId outer = b.input(DType::f32, 1), single = b.input(DType::f32, 0);
  const ValueId doubled = b.op(Prim::add, DType::f32, single, single);
  b.store(3, b.op(Prim::mul, DType::f32, outer, doubled));
  const KernelSchedule plan = schedule(b.kernel);
  EXPECT_EQ(plan.row_prologue, (Values{single, doubled}));
  EXPECT_FALSE(plan.row_level[outer]);
}

TEST(KernelSchedule, SoftmaxHasThreeStages) {
  const Kernel kernel = testing::softmax_kernel();
  const KernelSchedule plan = schedule(kernel);
  ASSERT_EQ(plan.stages.size(), 3u);
  EXPECT_EQ(plan.stages[0].reductions, Indices{0});
  EXPECT_EQ(plan.stages[1].reductions, Indices{1});
  EXPECT_TRUE(plan.stages[2].reductions.empty());
  EXPECT_EQ(plan.stages[0].element_values, Values{0}) << "the maximum needs the input only";
  EXPECT_GT(plan.stages[1].element_values.size(), 2u) << "exp of the shifted input";
  EXPECT_EQ(plan.stages[2].element_stores, Indices{0});
  // The exponential is computed again in the last stage, then divided.
  EXPECT_EQ(plan.stages[2].element_values.size(), plan.stages[1].element_values.size() + 1);
}

TEST(KernelSchedule, StoresGoToTheFirstStageThatKnowsThem) {
  KernelBuilder b;
  b.kernel.rank = 2;
  b.kernel.reduced = 2;
  const ValueId x = b.input(DType::f32, 3);
  const ValueId twice = b.op(Prim::add, DType::f32, x, x);
  const ValueId total = b.reduce(Op::sum, x);
  const ValueId centered = b.op(Prim::sub, DType::f32, x, total);
  const ValueId second = b.reduce(Op::sum, centered);
  b.store(3, twice);     // needs no reduction: stage 0
  b.store(3, centered);  // needs stage 0: joins stage 1
  b.store(1, total);     // once per row, after stage 0
  b.store(1, second);    // after stage 1
  b.store(3, total);     // a row value stored at each point
  const KernelSchedule plan = schedule(b.kernel);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[0].element_stores, Indices{0});
  EXPECT_EQ(plan.stages[0].row_stores, Indices{2});
  EXPECT_EQ(plan.stages[1].element_stores, (Indices{1, 4}));
  EXPECT_EQ(plan.stages[1].row_stores, Indices{3});
}

TEST(KernelSchedule, RowLevelValuesWaitForTheirReduction) {
  KernelBuilder b;
  b.kernel.rank = 2;
  b.kernel.reduced = 2;
  const ValueId x = b.input(DType::f32, 3), bias = b.input(DType::f32, 1), s = b.scalar(DType::f32);
  const ValueId early = b.op(Prim::mul, DType::f32, bias, s);
  const ValueId late = b.op(Prim::add, DType::f32, b.reduce(Op::sum, x), early);
  const ValueId unused = b.op(Prim::sqrt, DType::f32, early);
  b.store(1, late);
  const KernelSchedule plan = schedule(b.kernel);
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_EQ(plan.row_prologue, (Values{bias, s, early}));
  EXPECT_EQ(plan.stages[0].row_values.back(), late);
  EXPECT_TRUE(plan.row_level[early]);
  for (const ValueId id : plan.row_prologue) EXPECT_NE(id, unused) << "nothing needs it";
}

TEST(KernelSchedule, ColumnKernelsKeepLaneValuesAtRowLevel) {
  KernelBuilder b;
  b.kernel.rank = 2;
  b.kernel.reduced = 1;
  const ValueId x = b.input(DType::f32, 3, true), bias = b.input(DType::f32, 2, true);
  b.store(2, b.op(Prim::add, DType::f32, b.reduce(Op::sum, x), bias), true);
  const KernelSchedule plan = schedule(b.kernel);
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_TRUE(plan.row_level[bias]);
  EXPECT_FALSE(plan.row_level[x]);
  EXPECT_EQ(plan.stages[0].row_stores, Indices{0});
}

TEST(KernelSchedule, ARowValueThatIsReducedAgainGetsAStage) {
  KernelBuilder b;  // counts the elements of each row by summing a constant, then sums the count
  b.kernel.rank = 1;
  b.kernel.reduced = 1;
  const ValueId count = b.reduce(Op::sum, b.constant(1.0f));
  b.store(0, b.reduce(Op::sum, count));
  const KernelSchedule plan = schedule(b.kernel);
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_TRUE(plan.stages[0].element_values.empty());
  EXPECT_EQ(plan.stages[1].row_stores, Indices{0});
}

TEST(KernelSchedule, SplitsReductionsOfOneStage) {
  const auto splits = [](const Kernel& kernel) { return can_split(kernel, schedule(kernel)); };
  const auto splits_columns = [](const Kernel& kernel) { return can_split_columns(kernel, schedule(kernel)); };
  EXPECT_TRUE(splits(testing::reduce_kernel(Op::sum, DType::f32, 2)));
  EXPECT_FALSE(splits(testing::reduce_kernel(Op::sum, DType::f32, 1))) << "lanes are columns";
  EXPECT_FALSE(splits(testing::softmax_kernel()));
  EXPECT_FALSE(splits(testing::map_kernel()));
  EXPECT_TRUE(splits_columns(testing::reduce_kernel(Op::sum, DType::f32, 1)));
  EXPECT_FALSE(splits_columns(testing::reduce_kernel(Op::sum, DType::f32, 2))) << "lanes are elements of a row";
  EXPECT_FALSE(splits_columns(testing::softmax_kernel()));
  EXPECT_FALSE(splits_columns(testing::map_kernel()));
  // What is stored at each point goes with the blocks of a row; columns have none of it.
  for (const std::uint16_t reduced : {std::uint16_t{1}, std::uint16_t{2}}) {
    KernelBuilder b;
    b.kernel.rank = 2;
    b.kernel.reduced = reduced;
    const ValueId x = b.input(DType::f32, 3, true);
    b.store(3, b.op(Prim::add, DType::f32, x, x), true);
    b.store(static_cast<std::uint16_t>(3 & ~reduced), b.reduce(Op::sum, x));
    EXPECT_EQ(splits(b.kernel), reduced == 2);
    EXPECT_FALSE(splits_columns(b.kernel));
  }
}

}  // namespace
}  // namespace fermata

// Which launches write large results in a second step. Results are those of the kernel: see StagedColumnsFuzz.
#include "codegen_cpu/staged_columns.h"

#include <gtest/gtest.h>

#include "ir/op.h"
#include "runtime/streaming.h"

namespace fermata {
namespace {

/// out = x / sum(x, axis 0), with `more` additions for each point of the result.
Kernel shares_of_columns(int more) {
  Kernel k;
  k.rank = 2, k.reduced = 1;
  k.accesses = {{.dtype = DType::f32, .axes = 3, .unit_stride = true},
                {.dtype = DType::f32, .axes = 3, .unit_stride = true}};
  const ValueId x = k.program.add({.prim = Prim::input, .type = DType::f32, .index = 0});
  const ReduceFormula& f = reduce_formula(Op::sum, DType::f32);
  k.reductions = {{k.program.inline_program(f.lift.program, {x, x}, f.lift.results), f.types, f.identity, f.combine}};
  const ValueId sum = k.program.add({.prim = Prim::reduced, .type = f.types[0], .index = 0});
  ValueId y = k.program.add({.prim = Prim::div, .type = DType::f32, .a = x, .b = sum});
  for (int i = 0; i < more; ++i) y = k.program.add({.prim = Prim::add, .type = DType::f32, .a = y, .b = x});
  k.stores = {{1, y}};
  return k;
}

class StagedColumns : public testing::Test {
 public:
  StagedColumns(const StagedColumns&) = delete;
  StagedColumns& operator=(const StagedColumns&) = delete;

 protected:
  StagedColumns() : before_(set_stream_threshold(64 << 20)) {}
  ~StagedColumns() override { set_stream_threshold(before_); }

  /// Of operands whose rows are `apart` elements apart.
  static bool has_two_steps(int more, std::int64_t rows, std::int64_t columns, std::int64_t apart) {
    const Kernel kernel = shares_of_columns(more);
    verify(kernel);
    const auto staged = staged_kernels(kernel);
    EXPECT_TRUE(staged);
    void* const pointers[]{nullptr, nullptr};
    const std::int64_t sizes[]{rows, columns}, strides[]{apart, 1, apart, 1}, offsets[]{0, 0};
    const KernelLaunch launch{.pointers = pointers,
                              .sizes = sizes,
                              .strides = strides,
                              .offsets = offsets,
                              .scalars = nullptr,
                              .row_begin = 0,
                              .row_end = 1,
                              .column_begin = 0,
                              .column_end = columns};
    return has_tall_columns(kernel, *staged, launch);
  }

 private:
  const std::int64_t before_;
};

TEST_F(StagedColumns, AreOfLargeResults) {
  EXPECT_TRUE(has_two_steps(0, 4200, 4001, 4001));
  EXPECT_TRUE(has_two_steps(0, 2100, 2001, 2001));  // soon computed
  EXPECT_FALSE(has_two_steps(40, 2100, 2001, 2001));
  EXPECT_TRUE(has_two_steps(40, 4200, 4001, 4001));
  EXPECT_FALSE(has_two_steps(0, 1000, 1000, 1000));
}

TEST_F(StagedColumns, AreOfRowsThatShareSetsOfACache) {
  EXPECT_TRUE(has_two_steps(0, 1024, 1024, 1024));
  EXPECT_TRUE(has_two_steps(0, 1000, 900, 1024));  // a view
  EXPECT_TRUE(has_two_steps(0, 1024, 1536, 1536));
  EXPECT_FALSE(has_two_steps(0, 1024, 1024, 1025));
  EXPECT_FALSE(has_two_steps(40, 1024, 1024, 1024));  // costs more to compute again
}

TEST_F(StagedColumns, HaveManyRows) {
  EXPECT_FALSE(has_two_steps(0, 100, 1024, 1024));
  EXPECT_FALSE(has_two_steps(0, 63, 1 << 20, 1 << 20));
}

}  // namespace
}  // namespace fermata

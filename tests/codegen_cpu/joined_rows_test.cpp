// Map kernels of short rows whose rows are joined, against the interpreter.
#include "codegen_cpu/joined_rows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "codegen_cpu/jit_compiler.h"
#include "tests/codegen_cpu/jit_target.h"

namespace fermata {
namespace {

constexpr std::int64_t kBehind = 64;  // bytes after the result, which must stay

/// out = (x + y) * z + c, all of one dtype: x in order, y one for each row, z the same row each time, c a single one.
Kernel four_operands(DType dtype, unsigned rank) {
  Kernel kernel;
  kernel.rank = static_cast<std::uint8_t>(rank);
  const auto all = static_cast<std::uint16_t>((1u << rank) - 1u), last = static_cast<std::uint16_t>(1u << (rank - 1u));
  const auto rows = static_cast<std::uint16_t>(all & ~last);
  kernel.accesses = {{.dtype = dtype, .axes = all, .unit_stride = true},
                     {.dtype = dtype, .axes = rows},
                     {.dtype = dtype, .axes = last, .unit_stride = true},
                     {.dtype = dtype},
                     {.dtype = dtype, .axes = all, .unit_stride = true}};
  ScalarProgram& p = kernel.program;
  ValueId in[4];
  for (std::uint16_t i = 0; i < 4; ++i) in[i] = p.add({.prim = Prim::input, .type = dtype, .index = i});
  const ValueId sum = p.add({.prim = Prim::add, .type = dtype, .a = in[0], .b = in[1]});
  const ValueId product = p.add({.prim = Prim::mul, .type = dtype, .a = sum, .b = in[2]});
  kernel.stores = {{4, p.add({.prim = Prim::add, .type = dtype, .a = product, .b = in[3]})}};
  return kernel;
}

class JoinedRows : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = test::why_not_for(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, JoinedRows, testing::Values("avx512", "avx2"),
                         [](const auto& info) { return info.param; });

TEST_P(JoinedRows, AgreeWithTheInterpreter) {
  for (const DType dtype : {DType::u8, DType::i16, DType::f32, DType::f64})
    for (const unsigned rank : {2u, 3u}) {
      const Kernel kernel = four_operands(dtype, rank);
      const std::optional<Kernel> joined = joined_kernel(kernel);
      ASSERT_TRUE(joined);
      verify(*joined);
      const auto code = joined_executable(kernel, executable_from_object(JitCompiler::instance().object_for(
                                                      *joined, nullptr, GetParam(), {.wide = true, .joined = true})));
      const auto bytes = static_cast<std::int64_t>(byte_size(dtype));
      for (const std::int64_t n : {1, 2, 3, 5, 8, 10, 16, 17, 31, 40, 63, 100})
        for (const auto& [rows, apart] : {std::pair{1, 2}, {16, 1}, {37, 2}, {150, 1}, {1500, 1}, {1500, 2}}) {
          SCOPED_TRACE(std::string(name(dtype)) + " rank " + std::to_string(rank) + " rows " + std::to_string(rows) +
                       " of " + std::to_string(n) + " apart " + std::to_string(apart));
          const std::int64_t outer = rank == 3 ? 3 : 1;  // `apart`: how far single elements lie from each other
          const std::int64_t all = outer * rows;
          const auto filled = [&](std::int64_t count) {
            std::vector<unsigned char> data(static_cast<std::size_t>(count * bytes + kBehind));
            for (std::int64_t i = 0; i < count; ++i) {
              const std::int64_t value = (i * 7 + count) % 11;
              const auto as = [&](auto x) { std::memcpy(data.data() + i * bytes, &x, sizeof(x)); };
              dtype == DType::u8    ? as(static_cast<std::uint8_t>(value))
              : dtype == DType::i16 ? as(static_cast<std::int16_t>(value))
              : dtype == DType::f32 ? as(static_cast<float>(value))
                                    : as(static_cast<double>(value));
            }
            return data;
          };
          std::vector<std::vector<unsigned char>> data{filled(all * n), filled(all * apart), filled(n), filled(1),
                                                       filled(all * n)};
          // Over [outer, rows, n]; along the outer axis, single elements go backwards.
          std::vector<std::int64_t> sizes{outer, rows, n}, strides;
          for (const auto& s : std::vector<std::vector<std::int64_t>>{
                   {rows * n, n, 1}, {-rows * apart, apart, 0}, {0, 0, 1}, {0, 0, 0}, {rows * n, n, 1}})
            strides.insert(strides.end(), s.begin() + (rank == 3 ? 0 : 1), s.end());
          if (rank == 2) sizes.erase(sizes.begin());
          std::vector<void*> pointers;
          for (auto& buffer : data) pointers.push_back(buffer.data());
          if (rank == 3) pointers[1] = data[1].data() + (outer - 1) * rows * apart * bytes;
          KernelLaunch launch{.pointers = pointers.data(),
                              .sizes = sizes.data(),
                              .strides = strides.data(),
                              .offsets = nullptr,
                              .scalars = nullptr,
                              .row_begin = 0,
                              .row_end = all,
                              .column_begin = 0,
                              .column_end = n};
          ASSERT_TRUE(can_join_rows(kernel, launch));
          std::vector<unsigned char> expected = data[4];
          pointers[4] = expected.data();
          interpret(kernel, launch);
          pointers[4] = data[4].data();
          const std::vector<unsigned char> before = data[4];
          code->launch(launch);
          ASSERT_EQ(data[4], expected);
          data[4] = before, pointers[4] = data[4].data();
          for (std::int64_t row = 0; row < all; row += 17) {  // as on several threads
            launch.row_begin = row, launch.row_end = std::min(all, row + 17);
            code->launch(launch);
          }
          ASSERT_EQ(data[4], expected);
        }
    }
}

/// Where it pays: rows of bytes of many lengths, others where few fill a vector, or where much is computed.
TEST(JoinedRowsOf, BytesAndShortRows) {
  const auto joins = [](DType dtype, std::int64_t columns) {
    const Kernel kernel = four_operands(dtype, 2);
    const std::int64_t sizes[] = {100, columns}, strides[] = {columns, 1, 1, 0, 0, 1, 0, 0, columns, 1};
    return has_rows_to_join(kernel, {.pointers = nullptr,
                                     .sizes = sizes,
                                     .strides = strides,
                                     .offsets = nullptr,
                                     .scalars = nullptr,
                                     .row_begin = 0,
                                     .row_end = 100,
                                     .column_begin = 0,
                                     .column_end = columns});
  };
  for (const std::int64_t columns : {3, 8, 16, 31}) EXPECT_TRUE(joins(DType::u8, columns)) << columns;
  for (const std::int64_t columns : {1, 2, 32, 100}) EXPECT_FALSE(joins(DType::u8, columns)) << columns;
  EXPECT_TRUE(joins(DType::f32, 5));
  EXPECT_FALSE(joins(DType::f32, 8));
}

TEST(JoinedRowsOf, ResultsInOrderAndOperandsInRows) {
  const Kernel kernel = four_operands(DType::f32, 2);
  const std::int64_t sizes[] = {100, 8};
  std::vector<std::int64_t> strides{8, 1, 1, 0, 0, 1, 0, 0, 8, 1};
  const KernelLaunch launch{.pointers = nullptr,
                            .sizes = sizes,
                            .strides = strides.data(),
                            .offsets = nullptr,
                            .scalars = nullptr,
                            .row_begin = 0,
                            .row_end = 100,
                            .column_begin = 0,
                            .column_end = 8};
  EXPECT_TRUE(can_join_rows(kernel, launch));
  strides[8] = 9;  // rows of the result apart
  EXPECT_FALSE(can_join_rows(kernel, launch));
  strides[8] = 8, strides[0] = 16;  // rows of an operand apart
  EXPECT_TRUE(can_join_rows(kernel, launch));
  strides[0] = 8, strides[1] = 2;  // elements of an operand apart
  EXPECT_FALSE(can_join_rows(kernel, launch));
  strides[1] = 1;
  KernelLaunch part = launch;
  part.column_end = 4;
  EXPECT_FALSE(can_join_rows(kernel, part));
  Kernel halves = kernel;
  halves.accesses[0].unit_stride = false, halves.accesses[0].half = Half::real;
  EXPECT_FALSE(joined_kernel(halves));
}

}  // namespace
}  // namespace fermata

// What running a kernel means: the reduction trees written out a second time, ranges, splits, dtypes, empty sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ir/float16.h"
#include "kernels.h"
#include "seed.h"

namespace fermata {
namespace {

using testing::KernelBuilder;
using testing::Launch;

// The trees of ir/kernel.h for f32 sums, straight from their description.
float lane_tree(const std::vector<float>& items) {
  float lanes[64] = {};
  for (std::size_t i = 0; i < items.size(); ++i) lanes[i % 64] = lanes[i % 64] + items[i];
  for (int half = 32; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}
float row_tree(const std::vector<std::vector<float>>& passes) {
  std::vector<float> blocks;
  for (const auto& pass : passes)
    for (std::size_t begin = 0; begin < pass.size(); begin += 8192)
      blocks.push_back(lane_tree({pass.begin() + static_cast<std::ptrdiff_t>(begin),
                                  pass.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 8192, pass.size()))}));
  return blocks.size() == 1 ? blocks[0] : lane_tree(blocks);
}
float column_tree(const std::vector<float>& steps) {
  std::vector<float> blocks;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i % 128 == 0) blocks.push_back(0);
    blocks.back() = blocks.back() + steps[i];
  }
  if (blocks.size() == 1) return blocks[0];
  float total = 0;
  for (const float block : blocks) total = total + block;
  return total;
}

class KernelInterpret : public testing::SeededTest {
 protected:
  std::vector<float> floats(std::int64_t count) {
    std::vector<float> x(static_cast<std::size_t>(count));
    std::normal_distribution<float> normal;
    for (float& v : x) v = normal(random_);
    return x;
  }
};

TEST_F(KernelInterpret, MapsWithBroadcastAndScalar) {
  const Kernel kernel = testing::map_kernel();
  const std::vector<float> x{1, 2, 3};
  std::vector<float> y(6, -1);
  Launch launch{kernel, {2, 3}};
  launch.bind(x.data(), {0, 1}).bind(y.data(), {3, 1}).scalars = {constant_bits(0.5f)};
  interpret(kernel, launch.whole());
  EXPECT_EQ(y, (std::vector<float>{3, 5, 7, 3, 5, 7}));
}

TEST_F(KernelInterpret, TouchesOnlyItsRange) {
  const Kernel kernel = testing::map_kernel();
  std::vector<float> x(200, 1), y(600, -1);
  Launch launch{kernel, {3, 200}};
  launch.bind(x.data(), {0, 1}).bind(y.data(), {200, 1}).scalars = {0};
  KernelLaunch part = launch.whole();
  part.row_begin = 1, part.row_end = 2, part.column_begin = 64, part.column_end = 100;
  interpret(kernel, part);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], i >= 264 && i < 300 ? 2.0f : -1.0f) << i;
}

TEST_F(KernelInterpret, ReadsBackwardsAndWritesStrided) {
  const Kernel kernel = testing::map_kernel();
  const std::vector<float> x{1, 2, 3};
  std::vector<float> y(8, -1);
  Launch launch{kernel, {1, 3}};
  launch.bind(&x[2], {0, -1}).bind(y.data(), {0, 2}).scalars = {0};
  interpret(kernel, launch.whole());
  EXPECT_EQ(y, (std::vector<float>{6, -1, 4, -1, 2, -1, -1, -1}));
}

/// y[i] = x[3 * index[i]], of an axis of `size` positions; where i < 2 it is added to z[i].
TEST_F(KernelInterpret, PicksElements) {
  testing::KernelBuilder b;
  const ValueId index = b.input(DType::i64, 1, true), size = b.offset(0), number = b.offset(1);
  const ValueId position = b.kernel.program.add(
      {.prim = Prim::position, .type = DType::i64, .index = b.kernel.program[number].index, .a = index, .b = size});
  const ValueId at = b.op(Prim::mul, DType::i64, position, b.constant(std::int64_t{3}));
  const auto read = [&](Prim prim, bool Access::*how, std::uint16_t axes, ValueId from, ValueId begin, ValueId end) {
    const std::uint16_t access = b.access(DType::f32, axes);
    b.kernel.accesses[access].*how = true;
    return b.kernel.program.add({.prim = prim, .type = DType::f32, .index = access, .a = from, .b = begin, .c = end});
  };
  const ValueId element = read(Prim::gather, &Access::gathered, 0, at, kNoValue, kNoValue);
  const ValueId added =
      read(Prim::guarded_input, &Access::guarded, 1, number, b.constant(std::int64_t{0}), b.constant(std::int64_t{2}));
  b.store(1, b.op(Prim::add, DType::f32, element, added), true);
  verify(b.kernel);
  const std::vector<float> x{1, 0, 0, 2, 0, 0, 3}, z{10, 20};
  std::vector<float> y(5, -1);
  for (const std::int64_t last : {0, 7}) {
    const std::vector<std::int64_t> positions{2, 0, -1, -3, last};
    std::vector<void*> pointers{const_cast<std::int64_t*>(positions.data()),
                                nullptr,
                                nullptr,
                                const_cast<float*>(x.data()),
                                const_cast<float*>(z.data()),
                                y.data()};
    const std::vector<std::int64_t> sizes{5}, strides{1, 0, 1, 0, 1, 1}, offsets{0, 3, 0, 0, 0, 0};
    LaunchFailure failure;
    const KernelLaunch launch{.pointers = pointers.data(),
                              .sizes = sizes.data(),
                              .strides = strides.data(),
                              .offsets = offsets.data(),
                              .scalars = nullptr,
                              .row_begin = 0,
                              .row_end = 1,
                              .column_begin = 0,
                              .column_end = 5,
                              .failure = &failure};
    interpret(b.kernel, launch);
    EXPECT_EQ(y, (std::vector<float>{13, 21, 3, 1, 1}));
    EXPECT_EQ(failure.failed, last == 0 ? 0 : 1);
    if (last == 0) continue;
    EXPECT_EQ(failure.value, position);
    EXPECT_EQ(failure.position, 7);
    EXPECT_EQ(failure.number, 4);
    EXPECT_EQ(gathered_reach(b.kernel, 3, launch), 6);
  }
}

TEST_F(KernelInterpret, RowSumsFollowTheTree) {
  const Kernel kernel = testing::reduce_kernel(Op::sum, DType::f32, 2);
  for (const std::int64_t n : {1, 63, 64, 65, 1000, 8191, 8192, 8193, 20000}) {
    const std::vector<float> x = floats(2 * n);
    float y[2] = {};
    Launch launch{kernel, {2, n}};
    launch.bind(x.data(), {n, 1}).bind(y, {1, 0});
    interpret(kernel, launch.whole());
    EXPECT_EQ(y[0], row_tree({{x.begin(), x.begin() + n}})) << n;
    EXPECT_EQ(y[1], row_tree({{x.begin() + n, x.end()}})) << n;
  }
}

TEST_F(KernelInterpret, OuterReducedAxesNumberTheBlocks) {
  const Kernel kernel = testing::reduce_kernel(Op::sum, DType::f32, 3);
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 100}, {2, 9000}, {200, 7}}) {
    const std::vector<float> x = floats(m * n);
    float y = -1;
    Launch launch{kernel, {m, n}};
    launch.bind(x.data(), {n, 1}).bind(&y, {0, 0});
    interpret(kernel, launch.whole());
    std::vector<std::vector<float>> passes;
    for (std::int64_t i = 0; i < m; ++i) passes.emplace_back(x.begin() + i * n, x.begin() + (i + 1) * n);
    EXPECT_EQ(y, row_tree(passes)) << m << " " << n;
  }
}

TEST_F(KernelInterpret, ColumnSumsFollowTheirBlocks) {
  const Kernel kernel = testing::reduce_kernel(Op::sum, DType::f32, 1);
  for (const std::int64_t m : {1, 127, 128, 129, 1000}) {
    const std::vector<float> x = floats(m * 3);
    float y[3] = {};
    Launch launch{kernel, {m, 3}};
    launch.bind(x.data(), {3, 1}).bind(y, {0, 1});
    interpret(kernel, launch.whole());
    for (std::size_t column = 0; column < 3; ++column) {
      std::vector<float> steps;
      for (std::size_t i = column; i < x.size(); i += 3) steps.push_back(x[i]);
      EXPECT_EQ(y[column], column_tree(steps)) << m;
    }
  }
}

TEST_F(KernelInterpret, SplitsGiveTheSameBits) {
  for (const Op op : {Op::sum, Op::argmax}) {
    const Kernel kernel = testing::reduce_kernel(op, DType::f32, 3);
    const std::int64_t m = 3, n = 30000;
    const std::vector<float> x = floats(m * n);
    std::uint64_t whole = 0, split = 0;
    const auto launch_into = [&](std::uint64_t& y) {
      Launch launch{kernel, {m, n}};
      launch.bind(x.data(), {n, 1});
      if (op == Op::argmax) launch.bind(nullptr, {n, 1});
      launch.bind(&y, {0, 0});
      return launch;
    };
    const Launch first = launch_into(whole), second = launch_into(split);
    interpret(kernel, first.whole());
    ASSERT_EQ(reduction_blocks(kernel, second.sizes.data()), 12);
    std::vector<std::uint64_t> states(12 * interpret_state_bytes(kernel) / 8);
    KernelLaunch part = second.whole();
    part.partials = states.data();
    for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{{7, 12}, {0, 1}, {1, 7}}) {
      part.column_begin = begin, part.column_end = end;
      interpret_partial(kernel, part);
    }
    interpret_finish(kernel, part);
    EXPECT_EQ(whole, split) << name(op);
  }
}

TEST_F(KernelInterpret, SoftmaxRowsAddUpToOne) {
  const Kernel kernel = testing::softmax_kernel();
  const std::int64_t n = 300;
  const std::vector<float> x = floats(2 * n);
  std::vector<float> y(x.size());
  Launch launch{kernel, {2, n}};
  launch.bind(x.data(), {n, 1}).bind(y.data(), {n, 1});
  interpret(kernel, launch.whole());
  for (std::size_t row = 0; row < 2; ++row) {
    const auto begin = row * static_cast<std::size_t>(n), end = begin + static_cast<std::size_t>(n);
    double total = 0;
    for (std::size_t i = begin; i < end; ++i) total += std::exp(static_cast<double>(x[i]));
    for (std::size_t i = begin; i < end; ++i)
      EXPECT_NEAR(static_cast<double>(y[i]), std::exp(static_cast<double>(x[i])) / total, 1e-7);
  }
}

TEST_F(KernelInterpret, ArgumentsTakeTheFirstOfEqualsAndNaN) {
  std::vector<float> x(200 * 200, 0);
  x[300] = x[500] = x[199 * 200] = 5;  // rows 1, 2 and 199, columns 100, 100 and 0
  const auto positions = [&](std::uint16_t reduced, std::vector<std::int64_t> along, std::vector<std::int64_t> kept) {
    const Kernel kernel = testing::reduce_kernel(Op::argmax, DType::f32, reduced);
    std::vector<std::int64_t> y(200, -1);
    Launch launch{kernel, {200, 200}};
    launch.bind(x.data(), {200, 1}).bind(nullptr, along).bind(y.data(), kept);
    interpret(kernel, launch.whole());
    return y;
  };
  const auto columns = positions(1, {1, 0}, {0, 1}), rows = positions(2, {0, 1}, {1, 0});
  EXPECT_EQ(columns[0], 199);
  EXPECT_EQ(columns[1], 0);
  EXPECT_EQ(columns[100], 1);
  EXPECT_EQ(rows[0], 0);
  EXPECT_EQ(rows[1], 100);
  EXPECT_EQ(rows[2], 100);
  EXPECT_EQ(positions(3, {200, 1}, {0, 0})[0], 300);
  x[400] = x[370] = std::nanf("");
  EXPECT_EQ(positions(3, {200, 1}, {0, 0})[0], 370) << "NaN counts as largest";
}

TEST_F(KernelInterpret, EmptyReductionsGiveTheIdentity) {
  for (const std::uint16_t reduced : std::vector<std::uint16_t>{1, 2}) {
    const Kernel kernel = testing::reduce_kernel(Op::prod, DType::f32, reduced);
    float y[2] = {-1, -1};
    Launch launch{kernel, reduced == 2 ? std::vector<std::int64_t>{2, 0} : std::vector<std::int64_t>{0, 2}};
    launch.bind(nullptr, {1, 1})
        .bind(y, reduced == 2 ? std::vector<std::int64_t>{1, 0} : std::vector<std::int64_t>{0, 1});
    interpret(kernel, launch.whole());
    EXPECT_EQ(y[0], 1);
    EXPECT_EQ(y[1], 1);
  }
}

TEST_F(KernelInterpret, NothingHappensWithoutElements) {
  const Kernel kernel = testing::map_kernel();
  Launch launch{kernel, {0, 3}};
  launch.bind(nullptr, {0, 1}).bind(nullptr, {3, 1}).scalars = {0};
  interpret(kernel, launch.whole());
}

TEST_F(KernelInterpret, NarrowFloatsComputeInF32) {
  for (const DType narrow : {DType::f16, DType::bf16}) {
    KernelBuilder b;
    const ValueId x = b.op(Prim::convert, DType::f32, b.input(narrow, 1, true));
    b.store(1, b.op(Prim::convert, narrow, b.op(Prim::div, DType::f32, x, b.constant(3.0f))), true);
    const std::uint16_t one = narrow == DType::f16 ? to_float16(1).bits : to_bfloat16(1).bits;
    const std::uint16_t third = narrow == DType::f16 ? to_float16(static_cast<double>(1.0f / 3.0f)).bits
                                                     : to_bfloat16(static_cast<double>(1.0f / 3.0f)).bits;
    std::uint16_t y = 0;
    Launch launch{b.kernel, {1}};
    launch.bind(&one, {1}).bind(&y, {1});
    interpret(b.kernel, launch.whole());
    EXPECT_EQ(y, third) << name(narrow);
  }
}

TEST_F(KernelInterpret, OffsetsStartWhereTheLaunchSays) {
  KernelBuilder b;
  b.kernel.rank = 2;
  b.store(3, b.offset(3), true);
  std::vector<std::int64_t> y(6);
  Launch launch{b.kernel, {2, 3}};
  launch.bind(nullptr, {10, 2}, 100).bind(y.data(), {3, 1});
  interpret(b.kernel, launch.whole());
  EXPECT_EQ(y, (std::vector<std::int64_t>{100, 102, 104, 110, 112, 114}));
}

TEST_F(KernelInterpret, ColumnKernelsOfSeveralStagesKeepLanesApart) {
  KernelBuilder b;  // each column minus its own sum
  b.kernel.rank = 2;
  b.kernel.reduced = 1;
  const ValueId x = b.input(DType::f64, 3, true);
  b.store(3, b.op(Prim::sub, DType::f64, x, b.reduce(Op::sum, x)), true);
  const std::vector<double> in{1, 2, 3, 4, 5, 6};
  std::vector<double> out(6);
  Launch launch{b.kernel, {3, 2}};
  launch.bind(in.data(), {2, 1}).bind(out.data(), {2, 1});
  interpret(b.kernel, launch.whole());
  EXPECT_EQ(out, (std::vector<double>{-8, -10, -6, -8, -4, -6}));
}

}  // namespace
}  // namespace fermata

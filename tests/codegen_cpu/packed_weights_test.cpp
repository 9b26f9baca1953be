// The product with packed weights by the kernel of every instruction set, which must have the same bits, against the
// reference in long double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "codegen_cpu/library/matmul_weights.h"
#include "ir/graph.h"
#include "ir/ops/products.h"
#include "ir/packed_weights.h"
#include "ir/shape.h"

namespace fermata {
namespace {

std::vector<std::pair<std::string, WeightsKernel>> kernels() {
  std::vector<std::pair<std::string, WeightsKernel>> all{{"baseline", kWeightsBaseline}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.emplace_back("avx2", kWeightsAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    all.emplace_back("avx512", kWeightsAvx512);
#endif
  return all;
}

struct Problem {
  PackedWeights form;
  Shape x_sizes, out_sizes;
  std::vector<float> x;
  std::vector<std::uint8_t> bytes;

  Problem(std::int64_t rows, PackedWeights f, std::mt19937& random)
      : form(f), x_sizes{rows, f.columns}, out_sizes{rows, f.rows} {
    std::uniform_real_distribution<float> value(-1, 1);
    for (std::int64_t i = 0; i < rows * form.columns; ++i) x.push_back(value(random));
    for (std::int64_t i = 0; i < element_count(form.shape()); ++i) bytes.push_back(static_cast<std::uint8_t>(random()));
    // Scales near 1, of which the upper bytes are these.
    const std::int64_t blocks = form.blocks() * form.groups(), wide = form.group == 0 ? 4 : 2;
    for (std::int64_t b = 0; b < blocks; ++b)
      for (std::int64_t lane = 0; lane < PackedWeights::kBlock; ++lane) {
        const auto at = static_cast<std::size_t>(b * form.group_bytes() + lane * wide);
        bytes[at + static_cast<std::size_t>(wide) - 1] = 0x3f, bytes[at + static_cast<std::size_t>(wide) - 2] = 0x80;
      }
  }
  std::vector<float> run(WeightsKernel kernel) const {
    const Shape bytes_sizes = form.shape(), bytes_strides = dense_strides(bytes_sizes);
    const Shape x_strides = dense_strides(x_sizes), out_strides = dense_strides(out_sizes);
    std::vector<float> out(static_cast<std::size_t>(element_count(out_sizes)), -7);
    const TensorView inputs[] = {
        {const_cast<float*>(x.data()), DType::f32, 2, x_sizes.data(), x_strides.data()},
        {const_cast<std::uint8_t*>(bytes.data()), DType::u8, static_cast<std::uint8_t>(bytes_sizes.rank()),
         bytes_sizes.data(), bytes_strides.data()}};
    const TensorView output{out.data(), DType::f32, 2, out_sizes.data(), out_strides.data()};
    matmul_weights_call({Op::matmul_weights, inputs, {&output, 1}, {&form.rows, 1}, {}}, kernel);
    return out;
  }
  std::vector<double> wanted() const {
    GraphNode node;
    node.op = Op::matmul_weights, node.dtype = DType::f32, node.shape = out_sizes, node.attributes = {form.rows};
    const ReferenceTensor left{DType::f32, x_sizes, {x.begin(), x.end()}, {}},
        right{DType::u8, form.shape(), {}, {bytes.begin(), bytes.end()}};
    return ops::MatmulWeights::reference(node, {&left, &right}).floats;
  }
};

TEST(PackedWeights, EveryKernelHasTheSameBits) {
  std::mt19937 random(5);
  for (const std::int64_t group : {0, 32, 64})
    for (const auto& [out, in] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {32, 64}, {70, 200}, {33, 131}})
      for (const std::int64_t rows : {1, 2, 3, 4, 7, 70}) {
        const Problem p(rows, {out, in, group}, random);
        const std::vector<double> wanted = p.wanted();
        const std::vector<float> first = p.run(kWeightsBaseline);
        for (std::size_t i = 0; i < first.size(); ++i)
          ASSERT_NEAR(first[i], wanted[i], 1e-4 * std::sqrt(static_cast<double>(in)) * (group == 0 ? 100 : 8))
              << group << " " << out << " " << in << " " << rows << " at " << i;
        for (const auto& [name, kernel] : kernels()) EXPECT_EQ(p.run(kernel), first) << name << " " << group;
      }
}

TEST(PackedWeights, ShapesSayWhatTheyHold) {
  for (const std::int64_t group : {0, 32, 64})
    for (const std::int64_t rows : {0, 1, 32, 33})
      for (const std::int64_t columns : {0, 1, 31, 64, 65}) {
        const PackedWeights form{rows, columns, group};
        const auto found = PackedWeights::of(form.shape(), rows, columns);
        ASSERT_TRUE(found) << group << " " << rows << " " << columns;
        EXPECT_EQ(found->group, group);
        EXPECT_FALSE(PackedWeights::of(form.shape(), rows + 32, columns));
        EXPECT_FALSE(PackedWeights::of(form.shape(), rows + 1, columns + 64) && rows % 32 == 0);
      }
  EXPECT_FALSE(PackedWeights::of(Shape{1}, 1, 1));
  EXPECT_FALSE(PackedWeights::of(Shape{1, 1, 64 + 16 * 48}, 1, 1));
}

}  // namespace
}  // namespace fermata

// Kernels as bytes: exact both ways, equal for equal kernels, and damage is always seen.
#include <gtest/gtest.h>

#include "ir/error.h"
#include "kernels.h"
#include "seed.h"

namespace fermata {
namespace {

std::vector<Kernel> samples() {
  std::vector<Kernel> kernels{testing::map_kernel(), testing::softmax_kernel()};
  for (const Op op : {Op::sum, Op::argmax, Op::max})
    for (const std::uint16_t reduced : std::vector<std::uint16_t>{1, 2, 3})
      for (const DType t : {DType::f32, DType::f64, DType::i64})
        kernels.push_back(testing::reduce_kernel(op, t, reduced));
  for (const Half half : {Half::real, Half::imaginary}) {
    kernels.push_back(testing::map_kernel());
    for (Access& access : kernels.back().accesses) access.unit_stride = false, access.half = half;
  }
  for (bool Access::*const flag : {&Access::address_only, &Access::gathered, &Access::guarded}) {
    kernels.push_back(testing::map_kernel());
    for (Access& access : kernels.back().accesses) access.unit_stride = false, access.*flag = true;
  }
  return kernels;
}

bool equal(const Reduction& a, const Reduction& b) {
  return a.lifted == b.lifted && a.types == b.types && a.identity == b.identity &&
         a.combine.program == b.combine.program && a.combine.parameters == b.combine.parameters &&
         a.combine.results == b.combine.results;
}

void expect_equal(const Kernel& a, const Kernel& b) {
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.reduced, b.reduced);
  EXPECT_EQ(a.accesses, b.accesses);
  EXPECT_EQ(a.scalars, b.scalars);
  EXPECT_EQ(a.program, b.program);
  EXPECT_EQ(a.stores, b.stores);
  ASSERT_EQ(a.reductions.size(), b.reductions.size());
  for (std::size_t i = 0; i < a.reductions.size(); ++i) EXPECT_TRUE(equal(a.reductions[i], b.reductions[i]));
}

TEST(KernelSerialize, RoundTripsExactly) {
  for (const Kernel& kernel : samples()) {
    const std::string bytes = serialize(kernel);
    const Kernel back = deserialize_kernel(bytes);
    expect_equal(kernel, back);
    EXPECT_EQ(serialize(back), bytes);
  }
}

TEST(KernelSerialize, KeepsLongProgramsAndWideConstants) {
  testing::KernelBuilder b;
  ValueId value = b.input(DType::u64, 1);
  for (std::uint64_t i = 0; i < 600; ++i) value = b.op(Prim::add, DType::u64, value, b.constant(~i));
  b.store(1, value);
  expect_equal(deserialize_kernel(serialize(b.kernel)), b.kernel);
}

TEST(KernelSerialize, DifferentKernelsGiveDifferentBytes) {
  const std::vector<Kernel> kernels = samples();
  for (std::size_t i = 0; i < kernels.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(serialize(kernels[i]), serialize(kernels[j])) << i << " " << j;
}

TEST(KernelSerialize, EveryFlippedBitIsSeen) {
  const std::string bytes = serialize(testing::softmax_kernel());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    EXPECT_THROW(deserialize_kernel(damaged), InternalError) << "byte " << i;
  }
}

TEST(KernelSerialize, EveryTruncationIsSeen) {
  const std::string bytes = serialize(testing::reduce_kernel(Op::argmax, DType::f32, 2));
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(deserialize_kernel(bytes.substr(0, length)), InternalError) << length;
}

TEST(KernelSerialize, NamesTheDamage) {
  try {
    deserialize_kernel("short");
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.substr(0, text.find('\n')), "FM9001 InternalError: damaged kernel description: too short");
  }
}

}  // namespace
}  // namespace fermata

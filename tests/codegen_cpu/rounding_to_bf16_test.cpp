// Rounding to bf16 in the code for much used kernels (codegen_cpu/jit/rounding_to_bf16.h): the bits are those of the
// interpreter, for numbers of all kinds, alone and beside subnormal ones.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "codegen_cpu/jit_compiler.h"
#include "ir/kernel.h"

namespace fermata {
namespace {

/// Access 1 is access 0 in bf16; access 2 the larger of that and zero, which has no more digits.
Kernel rounding() {
  Kernel kernel;
  kernel.accesses = {{.dtype = DType::f32, .axes = 1, .unit_stride = true},
                     {.dtype = DType::bf16, .axes = 1, .unit_stride = true},
                     {.dtype = DType::bf16, .axes = 1, .unit_stride = true}};
  const auto convert = [&](ValueId x, DType to) {
    return kernel.program.add({.prim = Prim::convert, .type = to, .a = x});
  };
  const ValueId x = kernel.program.add({.prim = Prim::input, .type = DType::f32, .index = 0});
  const ValueId rounded = convert(x, DType::bf16), wide = convert(rounded, DType::f32);
  const ValueId larger = kernel.program.add(
      {.prim = Prim::max, .type = DType::f32, .a = wide, .b = kernel.program.constant(DType::f32, 0)});
  kernel.stores = {{1, rounded}, {2, convert(larger, DType::bf16)}};
  verify(kernel);
  return kernel;
}

class RoundingToBf16 : public testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
    executable_ = executable_from_object(
        JitCompiler::instance().object_for(rounding(), nullptr, {}, {.streamed = 0, .wide = true}));
  }
  void check(const std::vector<std::uint32_t>& numbers) {
    const auto count = static_cast<std::int64_t>(numbers.size());
    std::vector<float> from;
    for (const std::uint32_t bits : numbers) from.push_back(std::bit_cast<float>(bits));
    std::vector<std::uint16_t> got(2 * numbers.size()), wanted(2 * numbers.size());
    const auto launch = [&](std::vector<std::uint16_t>& to, auto&& run) {
      void* const pointers[] = {from.data(), to.data(), to.data() + count};
      const std::int64_t strides[] = {1, 1, 1}, offsets[3] = {};
      run(KernelLaunch{pointers, &count, strides, offsets, nullptr, 0, 1, 0, count});
    };
    launch(got, [&](const KernelLaunch& l) { executable_->launch(l); });
    const Kernel kernel = rounding();
    launch(wanted, [&](const KernelLaunch& l) { interpret(kernel, l); });
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], wanted[i]) << std::hex << numbers[i % numbers.size()] << (i < numbers.size() ? "" : ", larger");
  }

  std::shared_ptr<const Executable> executable_;
};

TEST_F(RoundingToBf16, OfEveryExponentAndSign) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t high = 0; high < 1u << 16; high += 3)
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) numbers.push_back(high << 16 | low);
  check(numbers);
}

TEST_F(RoundingToBf16, OfFewNumbersBesideSubnormalOnes) {
  std::mt19937 random(5);
  for (std::size_t count = 1; count < 200; ++count) {
    std::vector<std::uint32_t> numbers(count);
    for (std::uint32_t& bits : numbers) bits = static_cast<std::uint32_t>(random());
    if (count % 2 == 0) numbers[random() % count] &= 0x807fffff;  // subnormal
    if (count % 5 == 0) numbers[random() % count] |= 0x7f800000;  // not finite
    check(numbers);
  }
}

}  // namespace
}  // namespace fermata

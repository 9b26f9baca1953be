// Kernels of integers with their numbers as constants, in narrow types: random ones against the interpreter, and what
// ought to be narrowed. FERMATA_SEED and FERMATA_FUZZ_COUNT choose other ones.
#include "codegen_cpu/narrowed_kernel.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "codegen_cpu/jit_compiler.h"
#include "runtime/background.h"
#include "runtime/disk_cache.h"
#include "runtime/streaming.h"
#include "runtime/thread_pool.h"
#include "tests/codegen_cpu/jit_target.h"
#include "tests/codegen_cpu/kernel_generator.h"

namespace fermata {
namespace {

using test::KernelCase;
using test::Random;

/// Programs of small integers, computed in wide ones with numbers, and stored as something.
class IntegerKernel {
 public:
  explicit IntegerKernel(Random& random) : random_(random) {
    static const std::vector<DType> small = {DType::u8, DType::u8, DType::i8, DType::u16, DType::i16, DType::boolean};
    static const std::vector<DType> wide = {DType::i32, DType::i32, DType::i64, DType::u32, DType::i16, DType::u64};
    static const std::vector<DType> results = {DType::u8, DType::u8, DType::i8, DType::u16, DType::i16, DType::f32};
    type_ = random_.pick(wide);
    for (std::int64_t i = 1 + random_.below(3); i > 0; --i) {
      const DType loaded = random_.pick(small);
      pool_.push_back(
          converted(kernel.program.add({.prim = Prim::input, .type = loaded, .index = access(loaded)}), type_));
    }
    for (std::int64_t i = 1 + random_.below(9); i > 0; --i) add();
    for (std::int64_t i = 1 + random_.below(2); i > 0; --i) {
      const ValueId stored = converted(i == 1 ? pool_.back() : random_.pick(pool_), random_.pick(results));
      kernel.stores.push_back({access(kernel.program[stored].type), stored});
    }
  }
  Kernel kernel;

 private:
  std::uint16_t access(DType dtype) {
    kernel.accesses.push_back({.dtype = dtype, .axes = 1, .unit_stride = random_.chance(80)});
    return static_cast<std::uint16_t>(kernel.accesses.size() - 1);
  }
  ValueId converted(ValueId id, DType type) {
    return kernel.program[id].type == type ? id : kernel.program.add({.prim = Prim::convert, .type = type, .a = id});
  }
  /// A number of the launch, or a constant.
  ValueId number() {
    if (random_.chance(40)) return kernel.program.constant(type_, random_value(type_, random_, 10));
    kernel.scalars.push_back(type_);
    return kernel.program.add(
        {.prim = Prim::scalar, .type = type_, .index = static_cast<std::uint16_t>(kernel.scalars.size() - 1)});
  }
  void add() {
    const ValueId a = random_.chance(60) ? pool_.back() : random_.pick(pool_),
                  b = random_.chance(60) ? number() : random_.pick(pool_);
    const auto prim = static_cast<Prim>(static_cast<int>(Prim::add) +
                                        random_.below(static_cast<int>(Prim::convert) - static_cast<int>(Prim::add)));
    Instr instr{.prim = prim, .type = type_, .a = a};
    if (operand_count(prim) > 1) instr.b = b;
    if (prim >= Prim::eq && prim <= Prim::le) {
      const ValueId mask = kernel.program.add({.prim = prim, .type = DType::boolean, .a = a, .b = b});
      instr = {.prim = Prim::select, .type = type_, .a = mask, .b = random_.pick(pool_), .c = number()};
    } else if (prim == Prim::select || prim_function(prim, type_, type_) == nullptr) {
      static const std::vector<DType> others = {DType::i32, DType::u8,  DType::i16,
                                                DType::i64, DType::f32, DType::boolean};
      pool_.push_back(converted(converted(a, random_.pick(others)), type_));
      return;
    }
    pool_.push_back(kernel.program.add(instr));
  }
  Random& random_;
  DType type_;
  std::vector<ValueId> pool_;
};

unsigned widest_integer(const Kernel& kernel) {
  std::size_t widest = 0;
  for (const Instr& instr : kernel.program.instrs())
    if (is_integer(instr.type)) widest = std::max(widest, byte_size(instr.type));
  return static_cast<unsigned>(8 * widest);
}

TEST(NarrowedKernel, GivesTheSameBits) {
  const int count = test::fuzz_count_or(6000);
  int narrowed = 0, compared = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = test::seed_or(1) + static_cast<std::uint64_t>(i);
    Random random(seed);
    const Kernel kernel = IntegerKernel(random).kernel;
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed) + " FERMATA_FUZZ_COUNT=1\n" + to_string(kernel));
    verify(kernel);
    KernelCase expected(kernel, {300}, random), got = expected;
    const auto narrow = narrowed_kernel(kernel, expected.launch().scalars);
    if (!narrow) continue;
    ASSERT_NO_THROW(verify(*narrow)) << to_string(*narrow);
    ++compared, narrowed += widest_integer(*narrow) < widest_integer(kernel) ? 1 : 0;
    interpret(kernel, expected.launch());
    interpret(*narrow, got.launch());
    ASSERT_EQ(expected.difference(got), "") << to_string(*narrow);
  }
  EXPECT_TRUE(count < 100 || narrowed > count / 10) << narrowed << " of " << compared;
}

/// Any kernels: reductions, floats, offsets, whatever there is beside integers.
TEST(NarrowedKernel, GivesTheSameBitsForAnyKernel) {
  const int count = test::fuzz_count_or(1000);
  int compared = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = test::seed_or(1) + static_cast<std::uint64_t>(i);
    Random random(seed);
    const auto shape = static_cast<test::KernelShape>(seed % 3);
    test::KernelGenerator generator(random, shape, false, seed % 4 == 1);
    const Kernel kernel = generator.kernel();
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed) + " FERMATA_FUZZ_COUNT=1\n" + to_string(kernel));
    KernelCase expected(kernel, generator.sizes(), random), got = expected;
    const auto narrow = narrowed_kernel(kernel, expected.launch().scalars);
    if (!narrow) continue;
    ++compared;
    ASSERT_NO_THROW(verify(*narrow)) << to_string(*narrow);
    interpret(kernel, expected.launch());
    interpret(*narrow, got.launch());
    ASSERT_EQ(expected.difference(got), "") << to_string(*narrow);
  }
  EXPECT_TRUE(count < 1000 || compared > 1) << compared;
}

class NarrowedCode : public testing::TestWithParam<std::string> {};

TEST_P(NarrowedCode, AgreesWithTheInterpreter) {
  if (const std::string why = test::why_not_for(GetParam()); !why.empty()) GTEST_SKIP() << why;
  const int count = test::fuzz_count_or(60);
  int made = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = test::seed_or(1) + static_cast<std::uint64_t>(i);
    Random random(seed);
    const Kernel kernel = IntegerKernel(random).kernel;
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed) + " FERMATA_FUZZ_COUNT=1\n" + to_string(kernel));
    KernelCase expected(kernel, {1000}, random), got = expected;
    const auto narrow = narrowed_kernel(kernel, expected.launch().scalars);
    if (!narrow) continue;
    interpret(kernel, expected.launch());
    executable_from_object(JitCompiler::instance().object_for(*narrow, nullptr, GetParam(), {.wide = true}))
        ->launch(got.launch());
    ++made;
    ASSERT_EQ(expected.difference(got), "") << to_string(*narrow);
  }
  EXPECT_TRUE(count < 60 || made > count / 10) << made;
}
INSTANTIATE_TEST_SUITE_P(Targets, NarrowedCode, testing::Values("avx512", "avx2"),
                         [](const auto& info) { return info.param; });

/// (a * n0 + b * n1) / n2 of bytes, in `type`, stored as bytes.
Kernel blend(DType type) {
  Kernel kernel;
  kernel.accesses.assign(3, {.dtype = DType::u8, .axes = 1, .unit_stride = true});
  kernel.scalars.assign(3, type);
  ScalarProgram& p = kernel.program;
  const auto byte = [&](std::uint16_t index) {
    return p.add(
        {.prim = Prim::convert, .type = type, .a = p.add({.prim = Prim::input, .type = DType::u8, .index = index})});
  };
  const auto number = [&](std::uint16_t index) { return p.add({.prim = Prim::scalar, .type = type, .index = index}); };
  const auto call = [&](Prim prim, ValueId a, ValueId b) {
    return p.add({.prim = prim, .type = type, .a = a, .b = b});
  };
  const ValueId sum = call(Prim::add, call(Prim::mul, byte(0), number(0)), call(Prim::mul, byte(1), number(1)));
  kernel.stores = {{2, p.add({.prim = Prim::convert, .type = DType::u8, .a = call(Prim::div, sum, number(2))})}};
  return kernel;
}

TEST(NarrowedKernel, BytesAreBlendedIn16Bits) {
  for (const DType type : {DType::i32, DType::i64, DType::u32}) {
    const Kernel kernel = blend(type);
    EXPECT_TRUE(may_narrow(kernel));
    const std::uint64_t fit[] = {77, 178, 255}, wide[] = {77, 300, 255};
    EXPECT_EQ(widest_integer(narrowed_kernel(kernel, fit).value()), 16u);
    // 255 * 377 takes 17 bits.
    EXPECT_EQ(widest_integer(narrowed_kernel(kernel, wide).value()), 32u);
  }
}

/// The blend of an executable for some numbers, at a size; its variant for it.
struct Blend {
  std::vector<std::uint8_t> a = std::vector<std::uint8_t>(1000), b = a, out = a;
  std::vector<std::uint8_t> wanted = a;
  const Executable& variant(const Executable& executable, const std::array<std::uint64_t, 3>& numbers,
                            std::int64_t size) {
    return executable.variant_for(launch(numbers, size, out));
  }
  void expect_right(const Executable& code, const std::array<std::uint64_t, 3>& numbers) {
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] = static_cast<std::uint8_t>(i * 7), b[i] = static_cast<std::uint8_t>(i * 31);
    code.launch(launch(numbers, 1000, out));
    interpret(blend(DType::i32), launch(numbers, 1000, wanted));
    EXPECT_EQ(out, wanted);
  }

 private:
  KernelLaunch launch(const std::array<std::uint64_t, 3>& numbers, std::int64_t size, std::vector<std::uint8_t>& to) {
    static constexpr std::int64_t kStrides[] = {1, 1, 1}, kOffsets[] = {0, 0, 0};
    pointers_ = {a.data(), b.data(), to.data()}, size_ = size, numbers_ = numbers;
    return {pointers_.data(), &size_, kStrides, kOffsets, numbers_.data(), 0, 1, 0, size};
  }
  std::array<void*, 3> pointers_{};
  std::int64_t size_ = 0;
  std::array<std::uint64_t, 3> numbers_{};
};

TEST(NarrowedKernel, NumbersThatComeAgainGetCodeOfTheirOwn) {
  std::string failure_reason;
  if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
  const std::string kept = DiskCache::instance().set_directory("");
  const std::int64_t threshold = set_stream_threshold(std::int64_t{1} << 40);
  const int threads = thread_count();
  constexpr std::int64_t kMuch = std::int64_t{1} << 28;
  for (const int n : {1, 2}) {
    set_thread_count(n);
    const auto executable = JitCompiler::instance().compile(blend(DType::i32));
    Blend run;
    const auto numbers = [](std::uint64_t i) { return std::array<std::uint64_t, 3>{70 + i, 180 - i, 255}; };
    for (int i = 0; i < 20; ++i) run.variant(*executable, numbers(100 + static_cast<std::uint64_t>(i) % 2), kMuch);
    wait_for_background();
    const Executable& general = run.variant(*executable, numbers(100), 1000);
    EXPECT_EQ(&run.variant(*executable, numbers(101), 1000), &general) << "numbers change all the time";
    std::set<const Executable*> own;
    for (std::uint64_t set = 0; set < 4; ++set) {
      for (int i = 0; i < 6; ++i) run.variant(*executable, numbers(set), kMuch);
      wait_for_background();
      const Executable& code = run.variant(*executable, numbers(set), 1000);
      EXPECT_TRUE(&code != &general && own.insert(&code).second) << set;
      run.expect_right(code, numbers(set));
    }
    for (int i = 0; i < 6; ++i) run.variant(*executable, numbers(9), kMuch);
    wait_for_background();
    EXPECT_EQ(&run.variant(*executable, numbers(9), 1000), &general) << "there is code for four";
    run.expect_right(general, numbers(9));
    EXPECT_TRUE(own.contains(&run.variant(*executable, numbers(2), 1000)));
  }
  set_thread_count(threads);
  set_stream_threshold(threshold);
  DiskCache::instance().set_directory(kept);
}

/// floor_divide() of a byte and a number: neither is negative, so the quotient is the result.
TEST(NarrowedKernel, NothingRoundsDownWhatIsNotNegative) {
  Kernel kernel;
  kernel.accesses.assign(2, {.dtype = DType::u8, .axes = 1, .unit_stride = true});
  kernel.scalars = {DType::i32};
  const ValueId x = kernel.program.add({.prim = Prim::input, .type = DType::u8}),
                wide = kernel.program.add({.prim = Prim::convert, .type = DType::i32, .a = x}),
                n = kernel.program.add({.prim = Prim::scalar, .type = DType::i32});
  const Formula& formula = pointwise_formula(Op::floor_divide, DType::i32);
  const ValueId floor = kernel.program.inline_program(formula.program, {wide, n}, formula.results)[0];
  kernel.stores = {{1, kernel.program.add({.prim = Prim::convert, .type = DType::u8, .a = floor})}};
  const std::uint64_t number[] = {10};
  const Kernel narrow = narrowed_kernel(kernel, number).value();
  EXPECT_LE(widest_integer(narrow), 16u) << to_string(narrow);
  EXPECT_LE(schedule(narrow).stages[0].element_values.size(), 4u) << to_string(narrow);
}

TEST(NarrowedKernel, WhatIsNotFasterIsLeftAlone) {
  Kernel kernel;  // numbers of 32 bits plus one, as such
  kernel.accesses.assign(2, {.dtype = DType::i32, .axes = 1, .unit_stride = true});
  kernel.scalars = {DType::i32};
  const ValueId x = kernel.program.add({.prim = Prim::input, .type = DType::i32}),
                n = kernel.program.add({.prim = Prim::scalar, .type = DType::i32});
  kernel.stores = {{1, kernel.program.add({.prim = Prim::add, .type = DType::i32, .a = x, .b = n})}};
  EXPECT_FALSE(may_narrow(kernel));
  kernel.stores = {{1, kernel.program.add({.prim = Prim::div, .type = DType::i32, .a = x, .b = n})}};
  EXPECT_TRUE(may_narrow(kernel)) << "a division by a constant is a multiplication";
}

}  // namespace
}  // namespace fermata

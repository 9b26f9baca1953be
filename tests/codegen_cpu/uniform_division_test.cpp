// Division of a row by one number gives the bits of the processor's division (codegen_cpu/jit/uniform_division.h), in
// the code for much used kernels.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "codegen_cpu/jit_compiler.h"

namespace fermata {
namespace {

constexpr std::int64_t kColumns = 64;  // what is done at a time; fewer would be divided one by one

/// Rows of access 0 over access 1, one number for each row, into access 2; access 3 gets the sums, which make it a
/// kernel of rows.
Kernel quotients_of_rows() {
  Kernel kernel;
  kernel.rank = 2;
  kernel.reduced = 2;
  kernel.accesses = {{.dtype = DType::f32, .axes = 3, .unit_stride = true},
                     {.dtype = DType::f32, .axes = 1},
                     {.dtype = DType::f32, .axes = 3, .unit_stride = true},
                     {.dtype = DType::f32, .axes = 1}};
  const auto input = [&](std::uint16_t access) {
    return kernel.program.add({.prim = Prim::input, .type = DType::f32, .index = access});
  };
  const ValueId x = input(0), d = input(1);
  const ValueId quotient = kernel.program.add({.prim = Prim::div, .type = DType::f32, .a = x, .b = d});
  Reduction sum{.lifted = {x}, .types = {DType::f32}, .identity = {0}, .combine = {}};
  const auto parameter = [&](std::uint16_t index) {
    return sum.combine.program.add({.prim = Prim::parameter, .type = DType::f32, .index = index});
  };
  const ValueId left = parameter(0), right = parameter(1);
  sum.combine.parameters = {DType::f32, DType::f32};
  sum.combine.results = {sum.combine.program.add({.prim = Prim::add, .type = DType::f32, .a = left, .b = right})};
  kernel.reductions.push_back(sum);
  kernel.stores = {{2, quotient}, {3, kernel.program.add({.prim = Prim::reduced, .type = DType::f32, .index = 0})}};
  verify(kernel);
  return kernel;
}

class UniformDivision : public testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
    const JitVariant much_used{.streamed = 0, .wide = true};
    executable_ =
        executable_from_object(JitCompiler::instance().object_for(quotients_of_rows(), nullptr, {}, much_used));
  }

  void add(float divisor, std::vector<float> dividends) {
    std::uniform_int_distribution<std::uint32_t> mantissa(0, 0x7fffff), exponent(127 - 76, 127 + 75), sign(0, 1);
    while (dividends.size() < kColumns)  // what is divided quickly, and beside it anything
      dividends.push_back(std::bit_cast<float>(sign(random_) << 31 | exponent(random_) << 23 | mantissa(random_)));
    divisors_.push_back(divisor);
    dividends_.insert(dividends_.end(), dividends.begin(), dividends.begin() + kColumns);
  }

  void check() {
    const auto rows = static_cast<std::int64_t>(divisors_.size());
    std::vector<float> quotients(dividends_.size()), sums(divisors_.size());
    void* const pointers[] = {dividends_.data(), divisors_.data(), quotients.data(), sums.data()};
    const std::int64_t sizes[] = {rows, kColumns}, strides[] = {kColumns, 1, 1, 0, kColumns, 1, 1, 0}, offsets[4] = {};
    executable_->launch({pointers, sizes, strides, offsets, nullptr, 0, rows, 0, 1});
    for (std::size_t i = 0; i < quotients.size(); ++i) {
      const volatile float x = dividends_[i], d = divisors_[i / kColumns];
      const float wanted = x / d;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(quotients[i]), std::bit_cast<std::uint32_t>(wanted)) << x << " / " << d;
    }
    divisors_.clear(), dividends_.clear();
  }

  std::shared_ptr<const Executable> executable_;
  std::mt19937 random_{7};
  std::vector<float> divisors_, dividends_;
};

/// Numbers whose quotient by `divisor`, an odd integer of 24 bits, is as near to the middle between two floats as can
/// be.
std::vector<float> hardest_dividends(std::uint64_t divisor) {
  std::uint64_t inverse = divisor;  // modulo 2^k by Newton's iteration
  for (int i = 0; i < 5; ++i) inverse *= 2 - divisor * inverse;
  std::vector<float> found;
  for (const unsigned shift : {24u, 25u})
    for (const std::uint64_t residue : {inverse, ~inverse + 1}) {
      // middle * divisor is 1 or -1 modulo 2^shift; the middle has 25 bits and is odd.
      const std::uint64_t modulus = std::uint64_t{1} << shift;
      for (std::uint64_t middle = residue & (modulus - 1); middle < std::uint64_t{1} << 25; middle += modulus) {
        if (middle < std::uint64_t{1} << 24) continue;
        const std::uint64_t dividend = (middle * divisor + 1) >> shift;
        if (dividend < std::uint64_t{1} << 24) found.push_back(static_cast<float>(dividend));
      }
    }
  return found;
}

TEST_F(UniformDivision, GivesTheTrueQuotients) {
  std::uniform_int_distribution<std::uint32_t> mantissa(0, 0x7fffff), exponent(127 - 26, 127 + 26);
  for (int i = 0; i < 50000; ++i) add(std::bit_cast<float>(exponent(random_) << 23 | mantissa(random_)), {});
  check();
}

TEST_F(UniformDivision, GivesTheTrueQuotientsNextToTheMiddleOfTwoFloats) {
  std::size_t hard = 0;
  std::uniform_int_distribution<std::uint32_t> half_mantissa(0, 0x3fffff);
  for (std::uint32_t i = 0; i < 100000; ++i) {
    const std::uint32_t divisor = 0x800001 + 2 * (i < 1000   ? i
                                                  : i < 2000 ? 0x3fffff - (i - 1000)
                                                             : half_mantissa(random_));
    const std::vector<float> dividends = hardest_dividends(divisor);
    hard += dividends.size();
    add(static_cast<float>(divisor), dividends);
  }
  EXPECT_GT(hard, 100000u);
  check();
}

TEST_F(UniformDivision, GivesTheTrueQuotientsOfWhatIsSpecial) {
  using Limits = std::numeric_limits<float>;
  std::vector<float> special = {0.0f,          Limits::infinity(), Limits::quiet_NaN(),
                                Limits::max(), Limits::min(),      Limits::denorm_min(),
                                1.0f,          0x1.fffffep0f};
  for (const float bound : {0x1p-126f, 0x1p-76f, 0x1p-24f, 0x1p24f, 0x1p76f})
    for (const float x : {bound, std::nextafter(bound, 0.0f), std::nextafter(bound, Limits::infinity())})
      special.push_back(x);
  for (std::size_t i = special.size(); i-- > 0;) special.push_back(-special[i]);
  for (const float divisor : special) {
    add(divisor, special);
    add(divisor, {});                                                      // and nothing special
    for (const float x : special) add(divisor, {x});                       // one that is
    for (const float x : special) add(divisor, std::vector(kColumns, x));  // nothing else
  }
  check();
}

}  // namespace
}  // namespace fermata

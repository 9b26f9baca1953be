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

/// Of f32 and of f64.
template <class T> struct Format;
template <> struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr DType kDType = DType::f32;
  static constexpr int kMantissa = 23, kBias = 127, kDivisors = 24, kDividends = 76;
};
template <> struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr DType kDType = DType::f64;
  static constexpr int kMantissa = 52, kBias = 1023, kDivisors = 100, kDividends = 700;
};

/// Rows of access 0 over access 1, one number for each row, into access 2; in a kernel of rows, access 3 gets the sums.
Kernel quotients_of_rows(DType dtype, bool is_row_kernel) {
  Kernel kernel;
  kernel.rank = 2;
  kernel.accesses = {{.dtype = dtype, .axes = 3, .unit_stride = true},
                     {.dtype = dtype, .axes = 1},
                     {.dtype = dtype, .axes = 3, .unit_stride = true}};
  const auto input = [&](std::uint16_t access) {
    return kernel.program.add({.prim = Prim::input, .type = dtype, .index = access});
  };
  const ValueId x = input(0), d = input(1);
  kernel.stores = {{2, kernel.program.add({.prim = Prim::div, .type = dtype, .a = x, .b = d})}};
  if (is_row_kernel) {
    kernel.reduced = 2;
    kernel.accesses.push_back({.dtype = dtype, .axes = 1});
    Reduction sum{.lifted = {x}, .types = {dtype}, .identity = {0}, .combine = {}};
    const auto parameter = [&](std::uint16_t index) {
      return sum.combine.program.add({.prim = Prim::parameter, .type = dtype, .index = index});
    };
    const ValueId left = parameter(0), right = parameter(1);
    sum.combine.parameters = {dtype, dtype};
    sum.combine.results = {sum.combine.program.add({.prim = Prim::add, .type = dtype, .a = left, .b = right})};
    kernel.reductions.push_back(sum);
    kernel.stores.push_back({3, kernel.program.add({.prim = Prim::reduced, .type = dtype, .index = 0})});
  }
  verify(kernel);
  return kernel;
}

template <class T> class UniformDivision : public testing::Test {
 protected:
  using Of = Format<T>;
  using Bits = typename Of::Bits;

  void SetUp() override {
    std::string failure_reason;
    if (!JitCompiler::instance().available(&failure_reason)) GTEST_SKIP() << failure_reason;
    const JitVariant much_used{.streamed = 0, .wide = true};
    for (const bool is_row_kernel : {true, false})
      executables_.push_back(executable_from_object(
          JitCompiler::instance().object_for(quotients_of_rows(Of::kDType, is_row_kernel), nullptr, {}, much_used)));
  }

  static Bits bits(T x) { return std::bit_cast<Bits>(x); }
  /// A positive number whose exponent is between two.
  T positive(int least, int most) {
    std::uniform_int_distribution<Bits> mantissa(0, (Bits{1} << Of::kMantissa) - 1);
    std::uniform_int_distribution<int> exponent(least, most);
    return std::bit_cast<T>(static_cast<Bits>(Of::kBias + exponent(random_)) << Of::kMantissa | mantissa(random_));
  }

  void add(T divisor, std::vector<T> dividends) {
    while (dividends.size() < kColumns) {  // what is divided quickly, and beside it anything
      const T x = positive(-Of::kDividends, Of::kDividends - 1);
      dividends.push_back(random_() % 2 == 0 ? x : -x);
    }
    divisors_.push_back(divisor);
    dividends_.insert(dividends_.end(), dividends.begin(), dividends.begin() + kColumns);
  }

  void check() {
    const auto rows = static_cast<std::int64_t>(divisors_.size());
    for (const auto& executable : executables_) {
      std::vector<T> quotients(dividends_.size()), sums(divisors_.size());
      void* const pointers[] = {dividends_.data(), divisors_.data(), quotients.data(), sums.data()};
      const std::int64_t sizes[] = {rows, kColumns}, strides[] = {kColumns, 1, 1, 0, kColumns, 1, 1, 0},
                         offsets[4] = {};
      const std::int64_t column_end = executable == executables_[0] ? 1 : kColumns;  // of a kernel of rows, nothing
      executable->launch({pointers, sizes, strides, offsets, nullptr, 0, rows, 0, column_end});
      for (std::size_t i = 0; i < quotients.size(); ++i) {
        const volatile T x = dividends_[i], d = divisors_[i / kColumns];
        const T wanted = x / d;
        ASSERT_EQ(bits(quotients[i]), bits(wanted)) << x << " / " << d;
      }
    }
    divisors_.clear(), dividends_.clear();
  }

  /// Numbers whose quotient by `divisor`, an odd integer of as many bits as fit, is as near to the middle between two
  /// numbers as can be.
  static std::vector<T> hardest_dividends(std::uint64_t divisor) {
    constexpr unsigned kBits = Of::kMantissa + 1;
    std::uint64_t inverse = divisor;  // modulo 2^k by Newton's iteration
    for (int i = 0; i < 6; ++i) inverse *= 2 - divisor * inverse;
    std::vector<T> found;
    for (const unsigned shift : {kBits, kBits + 1})
      for (const std::uint64_t residue : {inverse, ~inverse + 1}) {
        // middle * divisor is 1 or -1 modulo 2^shift; the middle has one bit more and is odd.
        const std::uint64_t modulus = std::uint64_t{1} << shift;
        for (std::uint64_t middle = residue & (modulus - 1); middle < std::uint64_t{2} << kBits; middle += modulus) {
          if (middle < std::uint64_t{1} << kBits) continue;
          const auto dividend = static_cast<std::uint64_t>((static_cast<__int128>(middle) * divisor + 1) >> shift);
          if (dividend < std::uint64_t{1} << kBits) found.push_back(static_cast<T>(dividend));
        }
      }
    return found;
  }

  std::vector<std::shared_ptr<const Executable>> executables_;
  std::mt19937 random_{7};
  std::vector<T> divisors_, dividends_;
};
using Floats = testing::Types<float, double>;
TYPED_TEST_SUITE(UniformDivision, Floats);

TYPED_TEST(UniformDivision, GivesTheTrueQuotients) {
  for (int i = 0; i < 50000; ++i)
    this->add(this->positive(-TestFixture::Of::kDivisors - 2, TestFixture::Of::kDivisors + 2), {});
  this->check();
}

TYPED_TEST(UniformDivision, GivesTheTrueQuotientsNextToTheMiddleOfTwoFloats) {
  std::size_t hard = 0;
  const std::uint64_t most = std::uint64_t{1} << TestFixture::Of::kMantissa, half = most / 2 - 1;
  std::uniform_int_distribution<std::uint64_t> half_mantissa(0, half);
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const std::uint64_t divisor = most + 1 +
                                  2 * (i < 1000   ? i
                                       : i < 2000 ? half - (i - 1000)
                                                  : half_mantissa(this->random_));
    const auto dividends = TestFixture::hardest_dividends(divisor);
    hard += dividends.size();
    this->add(static_cast<TypeParam>(divisor), dividends);
  }
  EXPECT_GT(hard, 100000u);
  this->check();
}

TYPED_TEST(UniformDivision, GivesTheTrueQuotientsOfWhatIsSpecial) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  using Of = typename TestFixture::Of;
  std::vector<T> special = {
      0, Limits::infinity(),        Limits::quiet_NaN(), Limits::max(), Limits::min(), Limits::denorm_min(),
      1, std::nextafter(T{2}, T{0})};
  for (const int exponent : {1 - Of::kBias, -Of::kDividends, -Of::kDivisors, Of::kDivisors, Of::kDividends}) {
    const T bound = std::ldexp(T{1}, exponent);
    for (const T x : {bound, std::nextafter(bound, T{0}), std::nextafter(bound, Limits::infinity())})
      special.push_back(x);
  }
  for (std::size_t i = special.size(); i-- > 0;) special.push_back(-special[i]);
  for (const T divisor : special) {
    this->add(divisor, special);
    this->add(divisor, {});                                                     // and nothing special
    for (const T x : special) this->add(divisor, {x});                          // one that is
    for (const T x : special) this->add(divisor, std::vector<T>(kColumns, x));  // nothing else
  }
  this->check();
}

}  // namespace
}  // namespace fermata

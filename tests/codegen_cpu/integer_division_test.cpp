// Quotients and remainders of integers in vectors, which are computed as floats (codegen_cpu/jit/integer_division.h),
// are those of the processor's division: by one number for each row, and element by element.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "codegen_cpu/jit_compiler.h"
#include "ir/scalar_interpreter.h"
#include "tests/codegen_cpu/jit_target.h"
#include "tests/codegen_cpu/kernel_case.h"

namespace fermata {
namespace {

constexpr std::int64_t kColumns = 203;

class IntegerDivision : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = test::why_not_for(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }

  /// Rows of access 0 over those of access 1 (one number each, or one for each element): quotients into access 2,
  /// remainders into access 3.
  static Kernel division(DType type, bool by_rows) {
    Kernel kernel;
    kernel.rank = 2;
    const Access whole{.dtype = type, .axes = 3, .unit_stride = true};
    kernel.accesses = {whole, by_rows ? Access{.dtype = type, .axes = 1} : whole, whole, whole};
    const auto input = [&](std::uint16_t access) {
      return kernel.program.add({.prim = Prim::input, .type = type, .index = access});
    };
    const ValueId x = input(0), y = input(1);
    kernel.stores = {{2, kernel.program.add({.prim = Prim::div, .type = type, .a = x, .b = y})},
                     {3, kernel.program.add({.prim = Prim::rem, .type = type, .a = x, .b = y})}};
    verify(kernel);
    return kernel;
  }

  std::uint64_t any_bits(DType type) {
    const unsigned width = static_cast<unsigned>(8 * byte_size(type));
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - width);
    const std::uint64_t bits = random_() >> random_() % 64;  // as many small numbers as large ones
    return (random_() % 2 == 0 ? bits : ~bits + 1) & all;
  }
  std::vector<std::uint64_t> divisors(DType type) {
    const unsigned width = static_cast<unsigned>(8 * byte_size(type));
    const std::uint64_t top = std::uint64_t{1} << (width - 1), all = top - 1 + top;
    std::vector<std::uint64_t> found{0, 1, 2, 3, 5, 7, 10, 60, 100, 127, top - 1, top, top + 1};
    if (width == 64)
      for (const unsigned bit : {32u, 48u, 49u, 50u, 52u})
        for (std::uint64_t off = 0; off < 3; ++off) found.push_back((std::uint64_t{1} << bit) + off - 1);
    for (std::size_t i = found.size(); i-- > 0;) found.push_back((~found[i] + 1) & all);
    for (int i = 0; i < 300; ++i) found.push_back(any_bits(type));
    return found;
  }
  /// Multiples of the divisor and their neighbors, where a quotient changes, among others.
  std::vector<std::uint64_t> dividends(DType type, std::uint64_t divisor, unsigned most_bits) {
    const unsigned width = static_cast<unsigned>(8 * byte_size(type));
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - width);
    std::vector<std::uint64_t> found;
    while (found.size() < kColumns) {
      std::uint64_t x = any_bits(type);
      if (most_bits < width) {
        x &= (std::uint64_t{1} << most_bits) - 1;
        if (random_() % 2 == 0) x = ~x + 1;
      }
      const PrimFunction times = prim_function(Prim::mul, type, type), over = prim_function(Prim::div, type, type);
      const std::uint64_t multiple = times(over(x & all, divisor, 0), divisor, 0);
      for (const std::uint64_t near : {x, multiple, multiple + 1, multiple - 1}) found.push_back(near & all);
    }
    found.resize(kColumns);
    return found;
  }

  template <class T> static std::vector<T> elements(const std::vector<std::uint64_t>& bits) {
    std::vector<T> all(bits.size());
    std::ranges::transform(bits, all.begin(), [](std::uint64_t b) { return static_cast<T>(b); });
    return all;
  }

  template <class T> void check(DType type) {
    SCOPED_TRACE(name(type));
    for (const bool by_rows : {true, false})
      for (const bool wide : {false, true})
        for (const unsigned most_bits : {64u, 48u}) {  // of 64, some are divided one by one
          if (most_bits < 64 && byte_size(type) < 8) continue;
          const std::vector<std::uint64_t> numbers = divisors(type);
          std::vector<std::uint64_t> x, y;
          for (const std::uint64_t divisor : numbers) {
            const auto row = dividends(type, divisor, most_bits);
            x.insert(x.end(), row.begin(), row.end());
            y.insert(y.end(), by_rows ? 1 : kColumns, divisor);
          }
          const JitVariant variant{.streamed = 0, .wide = wide};
          const auto executable = executable_from_object(
              JitCompiler::instance().object_for(division(type, by_rows), nullptr, GetParam(), variant));
          std::vector<T> dividends = elements<T>(x), by = elements<T>(y), quotients(x.size()), rests(x.size());
          void* const pointers[] = {dividends.data(), by.data(), quotients.data(), rests.data()};
          const auto rows = static_cast<std::int64_t>(numbers.size());
          const std::int64_t sizes[] = {rows, kColumns}, offsets[4] = {};
          const std::int64_t strides[] = {kColumns, 1, by_rows ? 1 : kColumns, by_rows ? 0 : 1, kColumns, 1,
                                          kColumns, 1};
          executable->launch({pointers, sizes, strides, offsets, nullptr, 0, rows, 0, kColumns});
          for (std::size_t i = 0; i < x.size(); ++i) {
            const std::uint64_t d = y[by_rows ? i / kColumns : i];
            T quotient, rest;
            store_slot(type, &quotient, prim_function(Prim::div, type, type)(x[i], d, 0));
            store_slot(type, &rest, prim_function(Prim::rem, type, type)(x[i], d, 0));
            ASSERT_EQ(+quotients[i], +quotient) << +dividends[i] << " / " << +static_cast<T>(d);
            ASSERT_EQ(+rests[i], +rest) << +dividends[i] << " rem " << +static_cast<T>(d);
          }
        }
  }

  std::mt19937_64 random_{test::seed_or(11)};
};
INSTANTIATE_TEST_SUITE_P(Targets, IntegerDivision, testing::Values("avx512", "avx2"),
                         [](const auto& info) { return info.param; });

TEST_P(IntegerDivision, OfSignedIntegers) {
  check<std::int8_t>(DType::i8);
  check<std::int16_t>(DType::i16);
  check<std::int32_t>(DType::i32);
  check<std::int64_t>(DType::i64);
}

TEST_P(IntegerDivision, OfUnsignedIntegers) {
  check<std::uint8_t>(DType::u8);
  check<std::uint16_t>(DType::u16);
  check<std::uint32_t>(DType::u32);
  check<std::uint64_t>(DType::u64);
}

}  // namespace
}  // namespace fermata

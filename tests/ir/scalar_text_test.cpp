// Scalars as text read back to the same bits, in as few characters as that takes.
#include "ir/scalar_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "ir/scalar_program.h"
#include "seed.h"

namespace fermata {
namespace {

template <class T> std::string text(T value) { return scalar_to_text(dtype_of<T>, constant_bits(value)); }

TEST(ScalarText, IsShort) {
  EXPECT_EQ(text(2.0f), "2");
  EXPECT_EQ(text(0.1f), "0.1");
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(-0.0), "-0");
  EXPECT_EQ(text(1e30), "1e+30");
  EXPECT_EQ(text(true), "true");
  EXPECT_EQ(text(std::int8_t{-5}), "-5");
  EXPECT_EQ(text(~0ull), "18446744073709551615");
  EXPECT_EQ(text(-std::numeric_limits<float>::infinity()), "-inf");
  EXPECT_EQ(text(std::numeric_limits<float>::quiet_NaN()), "nan");
  EXPECT_EQ(scalar_to_text(DType::f32, 0xffc00001), "0xffc00001");
  EXPECT_EQ(scalar_to_text(DType::f16, 0x2e66), "0.1");
  EXPECT_EQ(scalar_to_text(DType::bf16, 0x3dcd), "0.1");
}

TEST(ScalarText, RefusesWhatDoesNotFit) {
  EXPECT_EQ(scalar_from_text(DType::i8, "128"), std::nullopt);
  EXPECT_EQ(scalar_from_text(DType::u8, "-1"), std::nullopt);
  EXPECT_EQ(scalar_from_text(DType::i32, "1.5"), std::nullopt);
  EXPECT_EQ(scalar_from_text(DType::boolean, "1"), std::nullopt);
  EXPECT_EQ(scalar_from_text(DType::f32, "one"), std::nullopt);
  EXPECT_EQ(scalar_from_text(DType::f32, "2x"), std::nullopt);
  EXPECT_EQ(scalar_from_text(DType::f16, "0x12345"), std::nullopt);
  EXPECT_EQ(scalar_from_text(DType::i64, "9223372036854775808"), std::nullopt);
}

class ScalarTextProperty : public testing::SeededTest {};
TEST_F(ScalarTextProperty, ReadsBackExactly) {
  for (const DType t : {DType::u8, DType::u16, DType::u32, DType::u64, DType::i8, DType::i16, DType::i32, DType::i64,
                        DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const std::uint64_t mask = byte_size(t) == 8 ? ~0ull : (1ull << (8 * byte_size(t))) - 1;
    for (int i = 0; i < (byte_size(t) <= 2 ? 0x10000 : 5000); ++i) {
      const std::uint64_t bits = (byte_size(t) <= 2 ? static_cast<std::uint64_t>(i) : random_()) & mask;
      ASSERT_EQ(scalar_from_text(t, scalar_to_text(t, bits)), bits) << name(t) << " " << scalar_to_text(t, bits);
    }
  }
}

}  // namespace
}  // namespace fermata

// Products of bytes, by every kernel that this machine has, against loops in 64-bit integers.
#include "codegen_cpu/library/matmul_bytes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_amx.h"
#include "ir/shape.h"

namespace fermata {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes random_bytes(std::int64_t count, std::mt19937_64& random) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (auto& b : bytes) b = static_cast<std::uint8_t>(random() % 16 == 0 ? 0x80u : random());  // the extremes, often
  return bytes;
}
std::int64_t value(std::uint8_t byte, DType dtype) {
  return dtype == DType::i8 ? static_cast<std::int8_t>(byte) : static_cast<std::int64_t>(byte);
}

struct Product {
  DType left, right;
  std::int64_t m, n, k;
  Bytes lhs, rhs;
  std::vector<std::int32_t> wanted;

  Product(DType l, DType r, std::int64_t rows, std::int64_t columns, std::int64_t depth, std::mt19937_64& random)
      : left(l),
        right(r),
        m(rows),
        n(columns),
        k(depth),
        lhs(random_bytes(m * k, random)),
        rhs(random_bytes(k * n, random)) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        std::int64_t sum = 0;
        for (std::int64_t p = 0; p < k; ++p)
          sum += value(lhs[static_cast<std::size_t>(i * k + p)], left) *
                 value(rhs[static_cast<std::size_t>(p * n + j)], right);
        wanted.push_back(static_cast<std::int32_t>(sum));
      }
  }
  /// [K, N] in the blocks of matmul_packed.
  Bytes packed() const {
    const std::int64_t groups = (k + 63) / 64 * 16;
    Bytes blocks(static_cast<std::size_t>((n + 63) / 64 * groups * 256), 0);
    for (std::int64_t p = 0; p < k; ++p)
      for (std::int64_t j = 0; j < n; ++j)
        blocks[static_cast<std::size_t>(((j / 64 * groups + p / 4) * 64 + j % 64) * 4 + p % 4)] =
            rhs[static_cast<std::size_t>(p * n + j)];
    return blocks;
  }

  std::vector<std::int32_t> run(CallKernel kernel, bool (*fits)(const CallArgs&), bool transposed, bool blocks) {
    Bytes right_bytes = blocks ? packed() : rhs;
    if (transposed)
      for (std::int64_t p = 0; p < k; ++p)
        for (std::int64_t j = 0; j < n; ++j)
          right_bytes[static_cast<std::size_t>(j * k + p)] = rhs[static_cast<std::size_t>(p * n + j)];
    const Shape left_sizes{m, k}, out_sizes{m, n};
    const Shape right_sizes = blocks ? Shape{(n + 63) / 64, (k + 63) / 64 * 16, 64, 4} : Shape{k, n};
    const Shape left_strides = dense_strides(left_sizes), out_strides = dense_strides(out_sizes);
    const Shape right_strides = transposed ? Shape{1, k} : dense_strides(right_sizes);
    const TensorView inputs[] = {{lhs.data(), left, 2, left_sizes.data(), left_strides.data()},
                                 {right_bytes.data(), right, static_cast<std::uint8_t>(right_sizes.rank()),
                                  right_sizes.data(), right_strides.data()}};
    std::vector<std::int32_t> out(static_cast<std::size_t>(m * n), -7);
    const TensorView output{out.data(), DType::i32, 2, out_sizes.data(), out_strides.data()};
    const CallArgs args{blocks ? Op::matmul_packed : Op::matmul_i32, inputs, {&output, 1}, {&n, blocks ? 1u : 0u}, {}};
    if (fits != nullptr && !fits(args)) return wanted;
    kernel(args);
    return out;
  }
};

/// Also of operands for which there are better ones.
bool pairs_can_run(const CallArgs&) { return has_byte_pairs(); }

TEST(MatmulBytes, EveryKernelIsExact) {
  std::mt19937_64 random(3);
  constexpr std::int64_t kSizes[][3] = {{1, 1, 1},     {1, 130, 64},  {5, 64, 63},  {33, 65, 129},  {3, 7, 200},
                                        {600, 70, 10}, {64, 520, 70}, {2, 1, 1000}, {100, 24, 2500}};
  for (const DType left : {DType::i8, DType::u8})
    for (const DType right : {DType::i8, DType::u8})
      for (const auto& [m, n, k] : kSizes) {
        Product p(left, right, m, n, k, random);
        const std::string sizes = std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k);
        for (const bool transposed : {false, true}) {
          EXPECT_EQ(p.run(&matmul_i32_portable, nullptr, transposed, false), p.wanted) << sizes;
          EXPECT_EQ(p.run(&matmul_i32_amx, &matmul_i32_amx_fits, transposed, false), p.wanted) << sizes;
          EXPECT_EQ(p.run(&matmul_i32_pairs, &pairs_can_run, transposed, false), p.wanted) << sizes;
          if (!has_onednn()) continue;
          EXPECT_EQ(p.run(&matmul_i32_onednn, &matmul_i32_onednn_fits, transposed, false), p.wanted) << sizes;
        }
        if (right != DType::i8) continue;
        EXPECT_EQ(p.run(&matmul_packed_portable, nullptr, false, true), p.wanted) << sizes;
        EXPECT_EQ(p.run(&matmul_packed_amx, &matmul_packed_amx_fits, false, true), p.wanted) << sizes;
        EXPECT_EQ(p.run(&matmul_packed_pairs, &pairs_can_run, false, true), p.wanted) << sizes;
        if (!has_vnni()) continue;
        EXPECT_EQ(p.run(&matmul_packed_vnni, &matmul_packed_vnni_fits, false, true), p.wanted) << sizes;
      }
}

TEST(MatmulBytes, SumsOfNothingAreZero) {
  std::mt19937_64 random(4);
  Product p(DType::u8, DType::i8, 3, 5, 0, random);
  EXPECT_EQ(p.run(&matmul_i32_portable, nullptr, false, false), p.wanted);
  EXPECT_EQ(p.run(&matmul_packed_portable, nullptr, false, true), p.wanted);
  EXPECT_EQ(p.run(&matmul_i32_pairs, &pairs_can_run, false, false), p.wanted);
  EXPECT_EQ(p.run(&matmul_packed_pairs, &pairs_can_run, false, true), p.wanted);
}

void say_whether_onednn_multiplies_bytes() {
  static bool fits = true;
  std::mt19937_64 random(5);
  Product p(DType::u8, DType::i8, 8, 8, 64, random);
  p.run(
      &matmul_i32_portable, [](const CallArgs& args) { return fits = matmul_i32_onednn_fits(args), true; }, false,
      false);
  std::fputs(fits ? "yes" : "no", stderr);
  std::exit(0);
}

TEST(MatmulBytesDeathTest, LibrariesKeepToTheInstructionSet) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("FERMATA_CPU", "avx2", 1);  // read when the process starts: the test runs in a new one
  EXPECT_EXIT(say_whether_onednn_multiplies_bytes(), testing::ExitedWithCode(0), "^no$");
  unsetenv("FERMATA_CPU");
}

}  // namespace
}  // namespace fermata

// Tables of bytes (codegen_cpu/irregular/byte_table.h) for every instruction set that this processor has.
#include "codegen_cpu/irregular/byte_table.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "codegen_cpu/code_target.h"

namespace fermata {
namespace {

TEST(ByteTable, FindsWhatALoadFinds) {
  std::vector<const ByteTableKernels*> all{&kByteTableBaseline};
#if defined(__x86_64__)
  if (processor_runs("avx2")) all.push_back(&kByteTableAvx2);
  if (processor_runs("avx512")) all.push_back(&kByteTableAvx512);
#endif
  std::mt19937 random(3);
  ByteTable table;
  for (std::uint8_t& entry : table.entries) entry = static_cast<std::uint8_t>(random());
  for (std::size_t count = 0; count < 700; ++count) {
    std::vector<std::uint8_t> bytes(count), wanted;
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    for (const std::uint8_t byte : bytes) wanted.push_back(table.entries[byte]);
    for (const ByteTableKernels* kernels : all) {
      std::vector<std::uint8_t> found(count + 1, 77);  // nothing behind the last one is written
      kernels->look_up(table, bytes.data(), found.data(), static_cast<std::int64_t>(count));
      ASSERT_EQ(found.back(), 77);
      found.pop_back();
      ASSERT_EQ(found, wanted) << count;
    }
  }
}

}  // namespace
}  // namespace fermata

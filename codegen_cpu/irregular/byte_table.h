// Bytes looked up in a table of 256: compiled once per instruction set (byte_table_*.cpp). A load for each byte takes
// several times as long as shuffles of a table in registers.
#pragma once

#include <cstdint>

namespace fermata {

struct ByteTable {
  alignas(64) std::uint8_t entries[256];
};

/// to[i] = table.entries[bytes[i]].
using LookUpBytes = void (*)(const ByteTable& table, const std::uint8_t* bytes, std::uint8_t* to, std::int64_t count);
struct ByteTableKernels {
  LookUpBytes look_up;
};
extern const ByteTableKernels kByteTableBaseline;
#if defined(__x86_64__)
extern const ByteTableKernels kByteTableAvx2;
extern const ByteTableKernels kByteTableAvx512;
#endif
const ByteTableKernels& byte_table_kernels();

}  // namespace fermata

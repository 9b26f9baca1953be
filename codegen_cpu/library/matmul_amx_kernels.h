// What the products by AMX tiles are made of, in a file of their own that is compiled for it (matmul_amx_kernels.cpp).
//
// A tile register holds 16 lines of 64 bytes: rows of the left side, or columns of the right one, each 32 bit of it the
// elements of 2 (bf16) or 4 (bytes) places of k. Both sides are packed as panels of 32 lines, one step of k after
// another; a number of f32 becomes three of bf16, of which it is the sum.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// What is multiplied with what; the sums are f32 for the first two, else i32.
enum class AmxKind : std::uint8_t { bf16, f32, i8_i8, i8_u8, u8_i8, u8_u8, count };

inline constexpr std::int64_t kAmxLines = 32, kAmxTileBytes = 1024;
/// Tiles of one line of k in a panel.
constexpr std::int64_t amx_parts(AmxKind k) { return k == AmxKind::f32 ? 3 : 1; }
/// Places of k in a tile.
constexpr std::int64_t amx_step(AmxKind k) { return k == AmxKind::f32 || k == AmxKind::bf16 ? 32 : 64; }
/// Steps that are added up in tile registers before they go to the sums. Panels this deep pass through the first-level
/// cache; and the sums of f32 of a few products each are rounded less than one long chain.
inline constexpr std::int64_t kAmxStepsTogether = 8;
constexpr std::int64_t amx_step_bytes(AmxKind k) { return 2 * kAmxTileBytes * amx_parts(k); }

/// Packs lines[0..count) of depth k, strides in elements, into panels. What is missing of the last panel and step is
/// zero.
struct AmxPacking {
  const void* from;
  std::int64_t line_stride, k_stride;
  std::int64_t lines, k;
  std::byte* panels;
  std::int64_t panel_bytes;  // from a panel to the next
  std::uint32_t* largest;    // f32: for each line the bits of its largest magnitude, joined with those that are there
};

/// Packed panels of rows times some of columns, added to sums: panel after panel of columns, 32 to a row.
struct AmxProduct {
  const std::byte* lhs;
  std::int64_t lhs_panel;  // bytes from a panel to the next
  const std::byte* rhs;
  std::int64_t rhs_panel, rhs_step, rhs_half,
      rhs_line;  // bytes from a panel, a step, a half of a panel, a line to the next
  std::int64_t rows, columns, steps;
  std::byte* sums;                  // rows rounded up to 32; f32 or i32
  bool first;                       // the sums are not there yet
  std::byte* out;                   // null: not finished
  std::int64_t out_row, out_bytes;  // bytes from a row to the next; of an element: 4, 2 (bf16) or 1 (the low byte)
};

struct AmxKernels {
  void (*pack_lhs[static_cast<std::size_t>(AmxKind::count)])(const AmxPacking&);
  void (*pack_rhs[static_cast<std::size_t>(AmxKind::count)])(const AmxPacking&);
  void (*multiply[static_cast<std::size_t>(AmxKind::count)])(const AmxProduct&);
  void (*configure)();  // on a thread, before it multiplies
  void (*release)();    // afterwards: switching to other threads then costs what it did before
};
#if defined(__x86_64__)
extern const AmxKernels kAmxKernels;
#endif

}  // namespace fermata

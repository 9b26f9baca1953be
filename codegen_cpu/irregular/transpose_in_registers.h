// Squares of vectors, turned in registers. Always inlined, so that a file built for one instruction set never lends its
// copy to another.
#pragma once

#include <utility>

namespace fermata {

/// Of two rows whose numbers differ in a bit: lanes without that bit in their numbers come first, or those with it.
template <int kBit, bool kWith, class V, int... kLane>
[[gnu::always_inline]] inline V lanes_of_both(V a, V b, std::integer_sequence<int, kLane...>) {
  constexpr int kSize = sizeof...(kLane);
  return __builtin_shufflevector(a, b, ((kLane & kBit) != 0 ? kSize + kLane - !kWith * kBit : kLane + kWith * kBit)...);
}

/// Lane j of row i and lane i of row j change places, for one bit of their numbers at a time. Where rows have more
/// lanes than there are rows, each group of as many lanes is a square.
template <int kBit = 1, class V, int kSide>
[[gnu::always_inline]] inline void transpose_in_registers(V (&rows)[kSide]) {
  if constexpr (kBit < kSide) {
    constexpr std::make_integer_sequence<int, static_cast<int>(sizeof(V) / sizeof(rows[0][0]))> kNumbers;
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i) {
      if ((i & kBit) != 0) continue;
      const V a = rows[i], b = rows[i + kBit];
      rows[i] = lanes_of_both<kBit, false>(a, b, kNumbers);
      rows[i + kBit] = lanes_of_both<kBit, true>(a, b, kNumbers);
    }
    transpose_in_registers<2 * kBit>(rows);
  }
}

}  // namespace fermata

// Sorting of integers by quicksort in vectors: the loops, compiled once per instruction set (vector_sort_*.cpp).
//
// A part is divided by a pivot with compressed stores, from one buffer to another. What fits into sixteen registers is
// sorted in them, by a network (Bramas, "A novel hybrid quicksort algorithm vectorized using AVX-512", 2017). Equal
// integers cannot be told apart, so results do not depend on the instruction set.
#pragma once

#include <array>
#include <cstdint>

#include "ir/dtype.h"

namespace fermata {

/// Elements of a dtype as signed integers in the same order (sort_keys.h), and back: `count` that lie side by side,
/// complemented where the largest comes first. Of 4 bytes each, or 8 for elements of 8. 0 and -0 are one key or two.
struct VectorSortKeys {
  void (*read)(const void* from, std::int64_t count, bool descending, bool equal_zeros, void* keys) = nullptr;
  void (*write)(const void* keys, std::int64_t count, bool descending, void* to) = nullptr;
};

template <class K> struct VectorSortOf {
  /// Sorts `keys` in place; `other` is as long.
  void (*sort)(K* keys, K* other, std::int64_t count);
  /// Writes the keys to `to`, those below `pivot` first, and gives how many these are.
  std::int64_t (*divide)(const K* keys, std::int64_t count, K pivot, K* to);
  /// A key of the middle, if only nearly.
  K (*pivot)(const K* keys, std::int64_t count);
};

/// No vector has more keys.
inline constexpr std::int64_t kMostSortLanes = 16;

struct VectorSort {
  VectorSortOf<std::int32_t> of_4_bytes;
  VectorSortOf<std::int64_t> of_8_bytes;
  std::array<VectorSortKeys, kDTypeCount> keys;
  /// Keys of 4 bytes with their positions as keys of 8, which sorts them stably; and the positions of these.
  void (*add_positions)(const std::int32_t* keys, std::int64_t count, std::int64_t* items);
  void (*positions_of)(const std::int64_t* items, std::int64_t count, std::int64_t* positions);
  /// Where keys below `bound` are, and how many; whole vectors are written.
  std::int64_t (*below)(const std::int32_t* keys, std::int64_t count, std::int32_t bound, std::int32_t* where);
  template <class K> const VectorSortOf<K>& of() const {
    if constexpr (sizeof(K) == 4)
      return of_4_bytes;
    else
      return of_8_bytes;
  }
};
#if defined(__x86_64__)
extern const VectorSort kVectorSortAvx2;
extern const VectorSort kVectorSortAvx512;
#endif
/// Null where the processor has no vectors for it.
const VectorSort* vector_sort();

}  // namespace fermata

// Vectorized quicksort of integers: the loops, compiled once per instruction set (vector_sort_*.cpp).
//
// Compressed stores partition the keys by a pivot. Up to 16 registers of keys are sorted
// in place by a network (Bramas, "A novel hybrid quicksort algorithm vectorized using AVX-512", 2017). Equal
// integers are indistinguishable, so results do not depend on the instruction set.
#pragma once

#include <array>
#include <cstdint>

#include "ir/dtype.h"

namespace fermata {

/// Converts elements of a dtype to signed integers in the same order (sort_keys.h), and back: `count` contiguous ones,
/// complemented if the largest comes first. Keys have 4 bytes, or 8 for elements of 8. 0 and -0 have one key or two.
struct VectorSortKeys {
  void (*read)(const void* from, std::int64_t count, bool descending, bool equal_zeros, void* keys) = nullptr;
  void (*write)(const void* keys, std::int64_t count, bool descending, void* to) = nullptr;
};

/// What sorted keys are written as, part by part while they are in the first cache; nothing is written by default.
template <class K> struct SortedKeys {
  void (*write)(const void* keys, std::int64_t count, bool descending, void* to) = nullptr;
  bool descending = false;
  void* elements = nullptr;  // those of the first key; may be the keys themselves
  std::int64_t element_bytes = 0;
};

template <class K> struct VectorSortOf {
  /// Sorts `keys` in place or into `other`, which has space for `room` keys: at least as many, room_for() where it may.
  void (*sort)(K* keys, K* other, bool to_other, std::int64_t room, std::int64_t count, const SortedKeys<K>& to);
  std::int64_t (*room_for)(std::int64_t count);
  /// Those below `pivot` stay at `keys` and the rest goes to `other`, or the other way round. Returns the number below.
  std::int64_t (*split)(K* keys, std::int64_t count, K pivot, K* other, bool others_stay);
  /// An approximate median of the keys.
  K (*pivot)(const K* keys, std::int64_t count);
  /// Sorts the columns of `rows` rows of `pitch` keys, which are whole vectors.
  void (*sort_rows)(K* keys, std::int64_t rows, std::int64_t pitch);
};

/// The maximum number of keys in a vector.
inline constexpr std::int64_t kMostSortLanes = 16;

struct VectorSort {
  VectorSortOf<std::int32_t> of_4_bytes;
  VectorSortOf<std::int64_t> of_8_bytes;
  std::array<VectorSortKeys, kDTypeCount> keys;
  /// Keys of 4 bytes with their positions as keys of 8, which sorts them stably; and the positions of these.
  void (*add_positions)(const std::int32_t* keys, std::int64_t count, std::int64_t* items);
  void (*positions_of)(const std::int64_t* items, std::int64_t count, std::int64_t* positions);
  /// sort_rows() of keys with their positions, which decide between equal keys.
  void (*sort_rows_with_positions)(std::int64_t* keys, std::int64_t* positions, std::int64_t rows, std::int64_t pitch);
  /// Positions of keys below `bound`, and their number; whole vectors are written.
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
/// Null if the processor does not support it.
const VectorSort* vector_sort();

}  // namespace fermata

// Elements that are each repeated some times, one behind the other: compiled once per instruction set (repeat_*.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata {

/// to[i * times + j] = from[i * step] for i < count, j < times; in elements.
struct RepeatedElements {
  void* to;
  const void* from;
  std::int64_t step, count, times;
};

/// Where the elements of each vector of the target lie in the source: the same places in each group of as many elements
/// as a vector has. Made once for many runs of the same step and times.
struct RepeatOrder {
  static constexpr std::int64_t kMostBytes = 64;  // of an element that is repeated; more are as fast one by one
  static constexpr std::int64_t kMostReach = 4096;
  std::int64_t vector_bytes = 0;      // 0: elements are written one by one
  std::int64_t parts = 1;             // of a vector, each of which has a place of its own in the source
  std::int64_t reach = 0;             // bytes of the source that a group reads
  std::int32_t from[2 * kMostBytes];  // bytes, of each part
  alignas(64) std::uint8_t order[kMostBytes * 64];
};

/// Of elements of 1, 2, 4 or 8 bytes.
struct RepeatKernels {
  /// For runs of about `count` elements of this step and times; few elements have no order.
  void (*find_order)(RepeatOrder&, std::int64_t element_bytes, std::int64_t step, std::int64_t times,
                     std::int64_t count);
  /// Without an order, one element after another.
  void (*repeat)(const RepeatOrder* order, std::int64_t element_bytes, const RepeatedElements&);
};
extern const RepeatKernels kRepeatBaseline;
#if defined(__x86_64__)
extern const RepeatKernels kRepeatAvx2;
extern const RepeatKernels kRepeatAvx512;
#endif
const RepeatKernels& repeat_kernels();

}  // namespace fermata

// See tuple_layout.h.
#include "ir/tuple_layout.h"

#include <algorithm>

namespace fermata {

TupleLayout tuple_layout(std::span<const TensorType> results) {
  constexpr std::int64_t kAlignment = 64;
  TupleLayout layout;
  for (const TensorType& type : results) {
    layout.offsets.push_back(layout.bytes);
    const std::int64_t bytes = element_count(type.shape) * static_cast<std::int64_t>(byte_size(type.dtype));
    std::int64_t end = 0;
    if (__builtin_add_overflow(layout.bytes, std::max<std::int64_t>(bytes, 1), &end) ||
        __builtin_add_overflow(end, kAlignment - 1, &end)) {
      layout.bytes = -1;
      return layout;
    }
    layout.bytes = end / kAlignment * kAlignment;
  }
  layout.bytes = std::max(layout.bytes, std::int64_t{1});
  return layout;
}

TensorType packed_type(std::span<const TensorType> results) {
  return results.size() == 1 ? results[0] : tuple_layout(results).type();
}

}  // namespace fermata

// See channels_last.h.
#include "ir/channels_last.h"

namespace fermata {

Shape channels_last_strides(std::span<const std::int64_t> sizes) {
  Shape strides(sizes);
  std::int64_t stride = sizes[1];
  for (std::size_t i = sizes.size(); i-- > 2;) strides[i] = stride, stride *= sizes[i];
  strides[1] = 1, strides[0] = stride;
  return strides;
}

bool is_channels_last(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  const Shape wanted = channels_last_strides(sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && strides[i] != wanted[i]) return false;
  return true;
}

}  // namespace fermata

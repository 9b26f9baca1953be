// Channels-last images: the layout that convolutions read and write
// (docs/adr/036-channels-innermost.md). Sizes stay [N, C, spatial ..].
#pragma once

#include <cstdint>
#include <span>

#include "ir/shape.h"

namespace fermata {

/// Strides of a buffer without gaps whose second axis has stride 1.
Shape channels_last_strides(std::span<const std::int64_t> sizes);
/// Whether a buffer has this layout; strides of axes of size 1 are ignored.
bool is_channels_last(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides);

}  // namespace fermata

// Images whose channels lie innermost in memory: the order in which convolutions read and write them
// (docs/adr/036-channels-innermost.md). Sizes stay [N, C, spatial ..].
#pragma once

#include <cstdint>
#include <span>

#include "ir/shape.h"

namespace fermata {

/// Strides of a buffer without gaps whose second axis has stride 1.
Shape channels_last_strides(std::span<const std::int64_t> sizes);
/// Whether elements lie so; the stride of an axis of one element says nothing.
bool is_channels_last(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides);

}  // namespace fermata

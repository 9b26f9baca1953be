// View ops as arithmetic on strides: the effect of reshape, permute, slice etc. on a strided layout.
#pragma once

#include <cstdint>
#include <span>

#include "ir/op.h"
#include "ir/shape.h"

namespace fermata {

/// Turns the layout (sizes, strides, offset) of an operand into that of the view op's result of shape `to`, with
/// attributes as in ir/graph.h. Returns false, and changes nothing, for a reshape that no strides can express.
bool apply_view(Op op, std::span<const std::int64_t> attributes, const Shape& to, Shape& sizes, Shape& strides,
                std::int64_t& offset);

/// Broadcasts a layout to `to`, aligned to the right: stretched and new axes get stride 0.
void apply_stretch(std::span<const std::int64_t> to, Shape& sizes, Shape& strides);

}  // namespace fermata

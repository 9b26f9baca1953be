// The layout of several results of one node: a node has one result, so they are packed into one buffer, and `unpack`
// nodes extract them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/infer.h"

namespace fermata {

struct TupleLayout {
  std::vector<std::int64_t> offsets;  // in bytes
  std::int64_t bytes = 0;             // negative on overflow
  TensorType type() const { return {DType::u8, Shape{bytes}}; }
};
TupleLayout tuple_layout(std::span<const TensorType> results);
/// The type of a node with these results; a single result is not packed.
TensorType packed_type(std::span<const TensorType> results);

}  // namespace fermata

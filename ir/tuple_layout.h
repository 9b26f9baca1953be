// Several results of one node: a node has one result, so they lie in one buffer, from which `unpack` nodes take them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/infer.h"

namespace fermata {

struct TupleLayout {
  std::vector<std::int64_t> offsets;  // in bytes
  std::int64_t bytes = 0;             // negative where they are more than can be counted
  TensorType type() const { return {DType::u8, Shape{bytes}}; }
};
TupleLayout tuple_layout(std::span<const TensorType> results);
/// The type of a node with these results: a single one is the node's own.
TensorType packed_type(std::span<const TensorType> results);

}  // namespace fermata

// Several results of one node: a node has one result, so they lie in one buffer, from which `unpack` nodes take them.
#pragma once

#include <span>
#include <vector>

#include "dispatch/schema.h"
#include "ir/infer.h"

namespace fermata {

struct TupleLayout {
  std::vector<std::int64_t> offsets;  // in bytes
  std::int64_t bytes = 0;
  TensorType type() const { return {DType::u8, Shape{bytes}}; }
};
TupleLayout tuple_layout(std::span<const TensorType> results);

/// The tensors that a call changes, in order: a recorded call gives their new values as results, before those that are
/// new.
std::vector<Tensor> written_tensors(const Schema* schema, const Stack& arguments);
/// Which results of a schema are tensors of their own, and not written arguments.
std::vector<std::size_t> new_results(const Schema& schema);

}  // namespace fermata

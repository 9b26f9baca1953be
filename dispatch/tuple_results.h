// The results of a recorded call: tensors that it writes, and new ones.
#pragma once

#include <span>
#include <vector>

#include "dispatch/schema.h"
#include "ir/tuple_layout.h"

namespace fermata {

/// The tensors that a call changes, in order: a recorded call gives their new values as results, before those that are
/// new.
std::vector<Tensor> written_tensors(const Schema* schema, const Stack& arguments);
/// Which results of a schema are tensors of their own, and not written arguments.
std::vector<std::size_t> new_results(const Schema& schema);

}  // namespace fermata

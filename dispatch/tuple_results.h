// The results of a recorded call: the tensors that it writes, and new ones.
#pragma once

#include <span>
#include <vector>

#include "dispatch/schema.h"
#include "ir/tuple_layout.h"

namespace fermata {

/// The tensors that a call writes, in order. A recorded call returns their new values before its new results.
std::vector<Tensor> written_tensors(const Schema* schema, const Stack& arguments);
/// The results of a schema that are new tensors rather than written arguments.
std::vector<std::size_t> new_results(const Schema& schema);

}  // namespace fermata

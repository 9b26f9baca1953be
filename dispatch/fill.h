// Which kernel fills a cell: the rules of docs/dispatch.md. Included only by files of this folder that fill the table.
#pragma once

#include <string_view>
#include <vector>

#include "dispatch/table.h"

namespace fermata {

struct Filled {
  const KernelFunction* kernel = nullptr;
  std::string_view rule = "missing";
  bool fallthrough = false;
};

bool is_backend_functionality(Functionality f);
/// Whether a functionality has a cell for each backend.
bool per_backend(Functionality f);
/// The kernels of a list that were registered for a key and are not replaced.
std::vector<const KernelFunction*> with_key(const std::vector<const KernelFunction*>& kernels, RegistrationKey key);
const std::vector<const KernelFunction*>& family_kernels(const OperatorRow& row);
/// Whether a backend has a kernel registered for this op itself, in addition to the variants of its family.
bool has_own_kernel(const OperatorRow& row, std::size_t column);
/// Computes the content of a cell. `column` is the backend plus one, 0 for none.
Filled fill(OperatorRow& row, Functionality f, std::size_t column);

}  // namespace fermata

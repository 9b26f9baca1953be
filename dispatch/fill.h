// Which kernel fills a cell: the rules of docs/dispatch.md. Only the files of this folder that fill the table include
// it.
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
/// Those of a list that were registered for a key and that no other one replaces.
std::vector<const KernelFunction*> with_key(const std::vector<const KernelFunction*>& kernels, RegistrationKey key);
const std::vector<const KernelFunction*>& family_kernels(const OperatorRow& row);
/// Whether a backend has a kernel that was registered for this op, so that the variants of its family are not all there
/// is.
bool has_own_kernel(const OperatorRow& row, std::size_t column);
/// What a cell holds. `column` is the backend plus one, 0 for none.
Filled fill(OperatorRow& row, Functionality f, std::size_t column);

}  // namespace fermata

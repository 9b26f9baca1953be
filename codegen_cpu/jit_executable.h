// A loaded object that can be started, and variants of it for work that is worth compiling them.
//
// A kernel is first compiled quickly. Which stores a launch should send past the caches depends on its sizes, and
// whether faster code pays on how much the kernel is used; a variant is compiled when a launch first wants it.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>

#include "codegen_cpu/arranged_operands.h"
#include "codegen_cpu/loaded_executable.h"
#include "ir/kernel.h"
#include "runtime/executable.h"

namespace fermata {

/// Code for one kernel among other code for it; the bits that it gives are the same.
struct JitVariant {
  StreamedStores streamed = 0;
  bool wide = false;    // takes twice as long to compile, and runs faster, by a fifth where the program is long
  bool turned = false;  // of turned_kernel() (turned_rows.h)
  bool joined = false;  // of joined_kernel() (joined_rows.h)
  bool staged = false;  // of staged_kernels() (staged_columns.h)
  bool parted = false;  // of kernel_parts() (kernel_parts.h)
  AccessSet in_order = 0, stretched = 0;  // of arranged_kernel() (arranged_operands.h)
  auto operator<=>(const JitVariant&) const = default;
};

/// Makes an object ready to run. Throws ObjectError if it is damaged or of another version of this library, and
/// NoMemoryForObject.
std::shared_ptr<const Executable> executable_from_object(std::string_view object, std::string_view name = {});
/// The same for the object of a kernel, compiled for `target`, that gets variants when they pay.
std::shared_ptr<const Executable> variable_executable(std::string_view object, const Kernel& kernel,
                                                      std::string_view target);

}  // namespace fermata

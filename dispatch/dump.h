// FERMATA_DUMP=ir,passes,kernels,llvm,asm,cuda,ptx,sass: what the compiler makes, on standard error, as it is made.
#pragma once

#include <string>
#include <string_view>

#include "ir/kernel.h"
#include "ir/key_set.h"

namespace fermata {

/// Is a kind of dump wanted? The list is read from FERMATA_DUMP once and may be replaced.
bool is_dump_enabled(std::string_view kind);
void set_dump(std::string_view kinds);
/// Prints one item under a headline.
void dump(std::string_view kind, std::string_view title, std::string_view text);
/// The kernel description, and the code a backend makes of it, where wanted.
void dump_kernel(std::string_view title, const Kernel& kernel, BackendKey backend);

}  // namespace fermata

// FERMATA_DUMP=ir,passes,kernels,llvm,asm,cuda,ptx,sass: prints compiler output to standard error as it is produced.
#pragma once

#include <string>
#include <string_view>

#include "ir/kernel.h"
#include "ir/key_set.h"

namespace fermata {

/// Whether a kind of dump is enabled. The list is read once from FERMATA_DUMP and can be replaced by set_dump().
bool is_dump_enabled(std::string_view kind);
void set_dump(std::string_view kinds);
/// Prints one item under a headline.
void dump(std::string_view kind, std::string_view title, std::string_view text);
/// Dumps the kernel description and the backend's code for it, if enabled.
void dump_kernel(std::string_view title, const Kernel& kernel, BackendKey backend);

}  // namespace fermata

// Maps instructions to lines of the kernel description, for listings: debug locations while code is emitted, comments
// in the text. Used only for listings; objects do not contain them.
#pragma once

#include <string>

#include "codegen_cpu/jit/llvm.h"

namespace fermata::jit {

/// Enables CodeBuilder::LineScope for a function.
void begin_lines(llvm::Function& function);
/// The text of a module, without debug information; instructions end in "; @12".
std::string marked_ir(const llvm::Module& module);
/// Replaces .loc directives in assembly text by comments: instructions end in "# @12".
std::string marked_assembly(const std::string& text);

}  // namespace fermata::jit

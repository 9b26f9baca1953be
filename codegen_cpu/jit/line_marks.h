// Which line of the description of a kernel an instruction comes from, for listings: debug locations while code is
// emitted, comments in the texts. Only where a listing is wanted, and without a trace in the object.
#pragma once

#include <string>

#include "codegen_cpu/jit/llvm.h"

namespace fermata::jit {

/// From now on instructions of the function have the lines of CodeBuilder::LineScope.
void begin_lines(llvm::Function& function);
/// The text of a module, without debug information; instructions end in "; @12".
std::string marked_ir(const llvm::Module& module);
/// Assembly with .loc directives as text without them; instructions end in "# @12".
std::string marked_assembly(const std::string& text);

}  // namespace fermata::jit

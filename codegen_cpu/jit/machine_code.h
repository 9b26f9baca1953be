// From LLVM IR to an object: LLVM's code generator with the passes that pay for themselves on kernels.
#pragma once

#include <string>

#include "codegen_cpu/jit/code_builder.h"

namespace fermata::jit {

/// The code generator of an instruction set, kept per thread. Safe to call from several threads.
llvm::LLVMTargetMachine& target_machine(const Isa& isa);

/// Turns a module into a relocatable object or assembly text; the module is used up.
std::string machine_code(llvm::Module& module, llvm::LLVMTargetMachine& target, llvm::CodeGenFileType type);

}  // namespace fermata::jit

// From LLVM IR to an object: LLVM's code generator with the passes that pay for themselves on kernels.
#pragma once

#include <memory>
#include <string>

#include "codegen_cpu/jit/code_builder.h"

namespace fermata::jit {

/// A code generator for one instruction set, to be used by one thread. Modules belong to its context, which keeps every
/// type and constant it has seen: replace it after a while, and after an error.
class CodeGenerator {
 public:
  explicit CodeGenerator(const Isa& isa);

  llvm::LLVMContext& context() { return context_; }
  /// An empty module for this target.
  std::unique_ptr<llvm::Module> new_module();
  /// A relocatable object; the module is used up. Thorough: with the passes that take a third more time and make code
  /// that is some per cent faster.
  std::string object(llvm::Module& module, bool thorough);
  /// Assembly text; the module is used up.
  std::string assembly(llvm::Module& module, bool thorough);

 private:
  /// The passes, and what they write to. Setting them up takes a fifth of the time of a small kernel, so they are kept.
  struct Pipeline;
  struct PipelineDeleter {
    void operator()(Pipeline* pipeline) const;
  };
  using PipelinePointer = std::unique_ptr<Pipeline, PipelineDeleter>;
  PipelinePointer make_pipeline(llvm::CodeGenFileType type, bool thorough);

  std::string errors_;
  llvm::LLVMContext context_;
  std::unique_ptr<llvm::LLVMTargetMachine> target_;
  PipelinePointer to_object_[2];  // quick, thorough; made when first needed
};

}  // namespace fermata::jit

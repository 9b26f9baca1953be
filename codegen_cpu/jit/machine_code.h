// LLVM IR to object code: LLVM's code generator with the passes that are profitable for kernels.
#pragma once

#include <memory>
#include <string>

#include "codegen_cpu/jit/code_builder.h"

namespace fermata::jit {

/// A code generator for one instruction set; not thread-safe. Modules belong to its context, which keeps every type and
/// constant that it has seen, so replace it from time to time, and after an error.
class CodeGenerator {
 public:
  explicit CodeGenerator(const Isa& isa);

  llvm::LLVMContext& context() { return context_; }
  /// An empty module for this target.
  std::unique_ptr<llvm::Module> new_module();
  /// Emits a relocatable object and consumes the module. `thorough` adds passes that take a third more time and make
  /// code a few per cent faster.
  std::string object(llvm::Module& module, bool thorough);
  /// Emits assembly text and consumes the module.
  std::string assembly(llvm::Module& module, bool thorough);

 private:
  /// The pass pipeline and its output. Setting it up takes a fifth of the compile time of a small kernel, so it is
  /// reused.
  struct Pipeline;
  struct PipelineDeleter {
    void operator()(Pipeline* pipeline) const;
  };
  using PipelinePointer = std::unique_ptr<Pipeline, PipelineDeleter>;
  PipelinePointer make_pipeline(llvm::CodeGenFileType type, bool thorough);

  std::string errors_;
  llvm::LLVMContext context_;
  std::unique_ptr<llvm::LLVMTargetMachine> target_;
  PipelinePointer to_object_[2];  // quick, thorough; created on first use
};

}  // namespace fermata::jit

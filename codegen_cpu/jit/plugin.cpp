// The plugin's two functions (plugin.h). Whatever goes wrong in here becomes a text for the caller.
#include "codegen_cpu/jit/plugin.h"

#include <cstdlib>
#include <cstring>
#include <exception>

#include "codegen_cpu/jit/emission.h"
#include "codegen_cpu/jit/machine_code.h"

namespace fermata::jit {
namespace {

char* copy_text(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

/// Errors that LLVM reports through its context, which would end the process otherwise.
struct CollectErrors : llvm::DiagnosticHandler {
  explicit CollectErrors(std::string& into) : text(into) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& diagnostic) override {
    if (diagnostic.getSeverity() == llvm::DS_Error) {
      llvm::raw_string_ostream out(text);
      llvm::DiagnosticPrinterRawOStream printer(out);
      diagnostic.print(printer);
    }
    return true;
  }
  std::string& text;
};

void verify_module(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (llvm::verifyModule(module, &out)) refuse("the LLVM IR is not well-formed: " + out.str());
}

void compile(const FermataLlvmRequest& request, FermataLlvmResult& result) {
  const Isa* const isa = find_isa(request.target);
  if (isa == nullptr) refuse("no instruction set is called " + std::string(request.target));
  const Kernel kernel = deserialise_kernel({request.kernel, request.kernel_size});
  llvm::LLVMTargetMachine& target = target_machine(*isa);

  std::string errors;
  llvm::LLVMContext context;
  context.setDiscardValueNames((request.flags & kFermataLlvmWantIr) == 0);
  context.setDiagnosticHandler(std::make_unique<CollectErrors>(errors));
  llvm::Module module("kernel", context);
  module.setTargetTriple(target.getTargetTriple().str());
  module.setDataLayout(target.createDataLayout());
  emit_kernel(module, kernel, *isa);

  if ((request.flags & kFermataLlvmVerify) != 0) verify_module(module);
  if ((request.flags & kFermataLlvmWantIr) != 0) {
    std::string text;
    llvm::raw_string_ostream out(text);
    module.print(out, nullptr);
    result.ir = copy_text(out.str());
  }
  if ((request.flags & kFermataLlvmWantAssembly) != 0)
    result.assembly = copy_text(machine_code(*llvm::CloneModule(module), target, llvm::CodeGenFileType::AssemblyFile));
  const std::string object = machine_code(module, target, llvm::CodeGenFileType::ObjectFile);
  if (!errors.empty()) refuse(errors);
  result.object = copy_text(object);
  result.object_size = object.size();
}

}  // namespace
}  // namespace fermata::jit

extern "C" void fermata_llvm_free(FermataLlvmResult* result) {
  for (char* const pointer : {result->object, result->ir, result->assembly, result->error}) std::free(pointer);
  *result = {};
}

extern "C" void fermata_llvm_compile(const FermataLlvmRequest* request, FermataLlvmResult* result) {
  *result = {};
  try {
    fermata::jit::compile(*request, *result);
    if (result->object == nullptr) throw std::bad_alloc();
  } catch (const std::exception& error) {
    fermata_llvm_free(result);
    result->error = fermata::jit::copy_text(error.what());
  } catch (...) {
    fermata_llvm_free(result);
    result->error = fermata::jit::copy_text("unknown error");
  }
}

// The plugin's two functions (plugin.h). Whatever goes wrong in here becomes a text for the caller.
#include "codegen_cpu/jit/plugin.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>

#include "codegen_cpu/jit/emission.h"
#include "codegen_cpu/jit/line_marks.h"
#include "codegen_cpu/jit/machine_code.h"
#include "ir/per_thread.h"
#include "ir/short_form.h"

namespace fermata::jit {
namespace {

char* copy_text(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

void verify_module(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (llvm::verifyModule(module, &out)) refuse("the LLVM IR is not well-formed: " + out.str());
}

/// The code generators of a thread. One is used for a number of kernels, and never again after an error.
class Lease {
 public:
  explicit Lease(const Isa& isa) : slot_(slots()[&isa]) {
    constexpr unsigned kMostKernels = 100;
    if (slot_.generator == nullptr || ++slot_.kernels > kMostKernels) slot_ = {std::make_unique<CodeGenerator>(isa), 0};
    generator_ = std::move(slot_.generator);
  }
  CodeGenerator& operator*() { return *generator_; }
  CodeGenerator* operator->() { return generator_.get(); }
  void give_back() { slot_.generator = std::move(generator_); }

 private:
  struct Slot {
    std::unique_ptr<CodeGenerator> generator;
    unsigned kernels = 0;
  };
  static std::map<const Isa*, Slot>& slots() {
    static constinit thread_local PerThread<std::map<const Isa*, Slot>> slots;
    return slots.get();
  }
  Slot& slot_;
  std::unique_ptr<CodeGenerator> generator_;
};

bool is_wide(const FermataLlvmRequest& request) { return (request.flags & kFermataLlvmWide) != 0; }

void dump(llvm::Module& module, CodeGenerator& generator, const FermataLlvmRequest& request,
          FermataLlvmResult& result) {
  if ((request.flags & kFermataLlvmVerify) != 0) verify_module(module);
  if ((request.flags & kFermataLlvmWantAssembly) != 0)
    result.assembly = copy_text(marked_assembly(generator.assembly(*llvm::CloneModule(module), is_wide(request))));
  if ((request.flags & kFermataLlvmWantIr) != 0) result.ir = copy_text(marked_ir(module));
  llvm::StripDebugInfo(module);  // so that the object is the same as without a listing
}

void compile(const FermataLlvmRequest& request, FermataLlvmResult& result) {
  const Isa* const isa = find_isa(request.target, {.gathers = (request.flags & kFermataLlvmGathers) != 0,
                                                   .bf16 = (request.flags & kFermataLlvmBf16) != 0});
  if (isa == nullptr) refuse("no instruction set is called " + std::string(request.target));
  const Kernel given = deserialize_kernel({request.kernel, request.kernel_size});
  const Kernel kernel = is_wide(request) ? given : short_form(given);
  Lease generator(*isa);
  const std::unique_ptr<llvm::Module> module = generator->new_module();
  const bool checked = (request.flags & kFermataLlvmCheck) != 0;
  const bool turned = (request.flags & kFermataLlvmTurned) != 0;
  const bool listed = (request.flags & (kFermataLlvmWantIr | kFermataLlvmWantAssembly)) != 0;
  emit_kernel(*module, kernel, *isa, {request.streamed, is_wide(request), checked, turned, listed});
  dump(*module, *generator, request, result);
  const std::string object = generator->object(*module, is_wide(request));
  result.object = copy_text(object);
  result.object_size = object.size();
  generator.give_back();
}

}  // namespace
}  // namespace fermata::jit

#define FERMATA_EXPORT extern "C" __attribute__((visibility("default")))

FERMATA_EXPORT void fermata_llvm_free(FermataLlvmResult* result) {
  for (char* const pointer : {result->object, result->ir, result->assembly, result->error}) std::free(pointer);
  *result = {};
}

FERMATA_EXPORT void fermata_llvm_compile(const FermataLlvmRequest* request, FermataLlvmResult* result) {
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

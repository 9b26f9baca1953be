// See machine_code.h.
//
// Measured on programs of 10 and 100 operations: the optimisation level Less without loop strength reduction and
// without the machine schedulers gives the speed of level Default in a third to a fifth of its time. The IR comes
// op-major, interleaved and with invariants hoisted, so that there is nothing left for those passes to find. Half of
// what remains at level Less are passes and analyses that do nothing for a kernel.
#include "codegen_cpu/jit/machine_code.h"

#include <algorithm>
#include <mutex>

namespace fermata::jit {
namespace {

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    // LLVM ends the process on an internal error; a kernel that cannot be compiled must only be reported.
    llvm::install_fatal_error_handler([](void*, const char* reason, bool) { refuse(std::string("LLVM: ") + reason); });
  });
}

std::unique_ptr<llvm::LLVMTargetMachine> make_target_machine(const Isa& isa) {
  initialise_llvm();
  const char* const triple = "x86_64-unknown-linux-gnu";
  std::string error;
  const llvm::Target* const target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (target == nullptr) refuse(error);
  llvm::TargetMachine* const machine =
      target->createTargetMachine(triple, isa.cpu, "", llvm::TargetOptions(), llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                  llvm::CodeGenOptLevel::Less, true);
  return std::unique_ptr<llvm::LLVMTargetMachine>(static_cast<llvm::LLVMTargetMachine*>(machine));
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

/// What turns the IR of a kernel into code, by LLVM's names; the other passes of its pipeline find nothing in a kernel
/// (exceptions, garbage collection, tiles, mitigations) or repeat what the emitter does.
constexpr std::string_view kPasses[] = {
    "tti",
    "scalarize-masked-mem-intrin",
    "x86-isel",
    "finalize-isel",
    "early-machinelicm",
    "machine-cse",
    "peephole-opt",
    "dead-mi-elimination",
    "x86-flags-copy-lowering",
    "processimpdefs",
    "unreachable-mbb-elimination",
    "livevars",
    "machine-loops",
    "phi-node-elimination",
    "twoaddressinstruction",
    "register-coalescer",
    "greedy",
    "virtregrewriter",
    "stack-slot-coloring",
    "machine-cp",
    "prologepilog",
    "branch-folder",
    "postrapseudos",
    "x86-pseudo",
    "block-placement",
    "x86-execution-domain-fix",
    "break-false-deps",
    "x86-compress-evex",
};

/// Hands on the passes of that list to a pass manager.
class PassFilter final : public llvm::legacy::PassManagerBase {
 public:
  explicit PassFilter(llvm::legacy::PassManager& passes) : passes_(passes) {}
  void add(llvm::Pass* pass) override {
    if (is_needed(*pass))
      passes_.add(pass);
    else
      delete pass;
  }

 private:
  static bool is_needed(const llvm::Pass& pass) {
    if (pass.getPassName() == "X86 vzeroupper inserter") return true;  // the one that has no short name
    const llvm::PassInfo* const info = llvm::PassRegistry::getPassRegistry()->getPassInfo(pass.getPassID());
    return info != nullptr &&
           std::ranges::find(kPasses, std::string_view(info->getPassArgument())) != std::end(kPasses);
  }
  llvm::legacy::PassManager& passes_;
};

}  // namespace

struct CodeGenerator::Pipeline {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out{bytes};
  llvm::legacy::PassManager passes;
  PassFilter filter{passes};
};
void CodeGenerator::PipelineDeleter::operator()(Pipeline* pipeline) const { delete pipeline; }

CodeGenerator::CodeGenerator(const Isa& isa) : target_(make_target_machine(isa)) {
  context_.setDiagnosticHandler(std::make_unique<CollectErrors>(errors_));
  to_object_ = make_pipeline(llvm::CodeGenFileType::ObjectFile);
}

CodeGenerator::PipelinePointer CodeGenerator::make_pipeline(llvm::CodeGenFileType type) {
  PipelinePointer pipeline(new Pipeline);
  llvm::TargetPassConfig* const config = target_->createPassConfig(pipeline->filter);
  auto* const machine_module = new llvm::MachineModuleInfoWrapperPass(target_.get());
  config->setDisableVerify(true);
  pipeline->passes.add(config);
  pipeline->passes.add(machine_module);
  if (config->addISelPasses()) refuse("LLVM has no instruction selector");
  config->addMachinePasses();
  config->setInitialized();
  if (target_->addAsmPrinter(pipeline->passes, pipeline->out, nullptr, type, machine_module->getMMI().getContext()))
    refuse("LLVM cannot write an object");
  pipeline->passes.add(llvm::createFreeMachineFunctionPass());
  return pipeline;
}

std::unique_ptr<llvm::Module> CodeGenerator::new_module() {
  auto module = std::make_unique<llvm::Module>("kernel", context_);
  module->setTargetTriple(target_->getTargetTriple().str());
  module->setDataLayout(target_->createDataLayout());
  return module;
}

std::string CodeGenerator::object(llvm::Module& module) {
  to_object_->bytes.clear();
  to_object_->passes.run(module);
  if (!errors_.empty()) refuse(errors_);
  return std::string(to_object_->bytes.data(), to_object_->bytes.size());
}

std::string CodeGenerator::assembly(llvm::Module& module) {
  const PipelinePointer pipeline = make_pipeline(llvm::CodeGenFileType::AssemblyFile);
  pipeline->passes.run(module);
  if (!errors_.empty()) refuse(errors_);
  return std::string(pipeline->bytes.data(), pipeline->bytes.size());
}

}  // namespace fermata::jit

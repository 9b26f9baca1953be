// See machine_code.h.
//
// Measured on programs of 10 and 100 operations: the optimization level Less without loop strength reduction and
// without the machine schedulers gives the speed of level Default in a third to a fifth of its time. The IR comes
// op-major, interleaved and with invariants hoisted, so that there is nothing left for those passes to find. Half of
// what remains at level Less are passes and analyzes that do nothing for a kernel. Of the others, those that make code
// some per cent faster wait until a kernel is used much. What is left is selection, by more than half: it takes about
// 10 us for each instruction, so the way to compile faster is to emit less.
#include "codegen_cpu/jit/machine_code.h"

#include <algorithm>
#include <mutex>

namespace fermata::jit {
namespace {

void initialize_llvm() {
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
  initialize_llvm();
  const char* const triple = "x86_64-unknown-linux-gnu";
  std::string error;
  const llvm::Target* const target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (target == nullptr) refuse(error);
  llvm::TargetMachine* const machine =
      target->createTargetMachine(triple, isa.cpu, isa.bf16 ? "+avx512bf16" : "", llvm::TargetOptions(),
                                  llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less, true);
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

struct PassChoice {
  std::string_view name;
  bool quick = true;  // also for code that shall be there soon
};
/// What turns the IR of a kernel into code, by LLVM's names; the other passes of its pipeline find nothing in a kernel
/// (exceptions, garbage collection, tiles, mitigations) or repeat what the emitter does. Hoisting is the slowest of
/// those that quick code does without: where constants are not kept in registers, there is little to be allocated.
constexpr PassChoice kPasses[] = {
    {"tti"},
    {"scalarize-masked-mem-intrin"},
    {"x86-isel"},
    {"finalize-isel"},
    {"early-machinelicm", false},
    {"machine-cse", false},
    {"peephole-opt"},
    {"dead-mi-elimination"},
    {"x86-flags-copy-lowering"},
    {"processimpdefs"},
    {"unreachable-mbb-elimination"},
    {"livevars"},
    {"machine-loops"},
    {"phi-node-elimination"},
    {"twoaddressinstruction"},
    {"register-coalescer"},
    {"greedy"},
    {"virtregrewriter"},
    {"stack-slot-coloring", false},
    {"machine-cp", false},
    {"prologepilog"},
    {"branch-folder"},
    {"postrapseudos"},
    {"x86-pseudo"},
    {"block-placement", false},
    {"x86-execution-domain-fix", false},
    {"break-false-deps", false},
    {"x86-compress-evex"},
};

/// Hands on the passes of that list to a pass manager.
class PassFilter final : public llvm::legacy::PassManagerBase {
 public:
  PassFilter(llvm::legacy::PassManager& passes, bool thorough) : passes_(passes), thorough_(thorough) {}
  void add(llvm::Pass* pass) override {
    if (is_needed(*pass))
      passes_.add(pass);
    else
      delete pass;
  }

 private:
  bool is_needed(const llvm::Pass& pass) const {
    if (pass.getPassName() == "X86 vzeroupper inserter") return true;  // the one that has no short name
    const llvm::PassInfo* const info = llvm::PassRegistry::getPassRegistry()->getPassInfo(pass.getPassID());
    if (info == nullptr) return false;
    const auto* const found = std::ranges::find(kPasses, std::string_view(info->getPassArgument()), &PassChoice::name);
    return found != std::end(kPasses) && (found->quick || thorough_);
  }
  llvm::legacy::PassManager& passes_;
  const bool thorough_;
};

}  // namespace

struct CodeGenerator::Pipeline {
  explicit Pipeline(bool thorough) : filter(passes, thorough) {}
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out{bytes};
  llvm::legacy::PassManager passes;
  PassFilter filter;
};
void CodeGenerator::PipelineDeleter::operator()(Pipeline* pipeline) const { delete pipeline; }

CodeGenerator::CodeGenerator(const Isa& isa) : target_(make_target_machine(isa)) {
  context_.setDiagnosticHandler(std::make_unique<CollectErrors>(errors_));
}

CodeGenerator::PipelinePointer CodeGenerator::make_pipeline(llvm::CodeGenFileType type, bool thorough) {
  PipelinePointer pipeline(new Pipeline(thorough));
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

std::string CodeGenerator::object(llvm::Module& module, bool thorough) {
  PipelinePointer& pipeline = to_object_[thorough ? 1 : 0];
  if (pipeline == nullptr) pipeline = make_pipeline(llvm::CodeGenFileType::ObjectFile, thorough);
  pipeline->bytes.clear();
  pipeline->passes.run(module);
  if (!errors_.empty()) refuse(errors_);
  return std::string(pipeline->bytes.data(), pipeline->bytes.size());
}

std::string CodeGenerator::assembly(llvm::Module& module, bool thorough) {
  const PipelinePointer pipeline = make_pipeline(llvm::CodeGenFileType::AssemblyFile, thorough);
  pipeline->passes.run(module);
  if (!errors_.empty()) refuse(errors_);
  return std::string(pipeline->bytes.data(), pipeline->bytes.size());
}

}  // namespace fermata::jit

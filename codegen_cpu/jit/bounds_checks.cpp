// See bounds_checks.h.
#include "codegen_cpu/jit/bounds_checks.h"

#include <llvm/IR/IntrinsicInst.h>

#include <cstddef>
#include <map>
#include <optional>
#include <set>

#include "codegen_cpu/jit/plugin.h"

namespace fermata::jit {
namespace {

using llvm::Instruction;

/// One load or store: where, under which mask, of what.
struct MemoryAccess {
  Instruction* instruction;
  Value* address;  // a vector of addresses where it gathers or scatters
  Value* mask = nullptr;
  Type* type;
  bool stores;
};

std::optional<MemoryAccess> memory_access(Instruction& i) {
  if (auto* const load = llvm::dyn_cast<llvm::LoadInst>(&i))
    return MemoryAccess{&i, load->getPointerOperand(), nullptr, load->getType(), false};
  if (auto* const store = llvm::dyn_cast<llvm::StoreInst>(&i))
    return MemoryAccess{&i, store->getPointerOperand(), nullptr, store->getValueOperand()->getType(), true};
  auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(&i);
  if (call == nullptr) {
    if (i.mayReadOrWriteMemory()) refuse("an instruction without a bounds check");
    return std::nullopt;
  }
  switch (call->getIntrinsicID()) {
    case llvm::Intrinsic::masked_load:
    case llvm::Intrinsic::masked_gather:
      return MemoryAccess{&i, call->getArgOperand(0), call->getArgOperand(2), call->getType(), false};
    case llvm::Intrinsic::masked_store:
    case llvm::Intrinsic::masked_scatter:
      return MemoryAccess{&i, call->getArgOperand(1), call->getArgOperand(3), call->getArgOperand(0)->getType(), true};
    case llvm::Intrinsic::prefetch:
    case llvm::Intrinsic::x86_sse_sfence: return std::nullopt;
    default: break;
  }
  if (i.mayReadOrWriteMemory()) refuse("an intrinsic without a bounds check");
  return std::nullopt;
}

class BoundsChecks {
 public:
  explicit BoundsChecks(const Emission& e) : e_(e), function_(*e.b.GetInsertBlock()->getParent()) {
    for (unsigned a = 0; a < e.kernel.accesses.size(); ++a)
      if (!e.kernel.accesses[a].address_only) origins_[e.accesses.origin()[a]] = a;
  }
  void add() {
    std::vector<MemoryAccess> found;
    for (llvm::BasicBlock& block : function_)
      for (Instruction& i : block)
        if (const auto access = memory_access(i)) found.push_back(*access);
    for (const MemoryAccess& access : found)
      if (const std::optional<std::uint64_t> subject = subject_of(access)) add_call(access, *subject);
  }

 private:
  /// What the checker is told of an access; nothing where there is nothing to check.
  std::optional<std::uint64_t> subject_of(const MemoryAccess& access) {
    std::set<Value*> bases, seen;
    add_bases(access.address, bases, seen);
    std::optional<std::uint64_t> subject;
    bool on_stack = false;
    for (Value* const base : bases) {
      if (llvm::isa<llvm::AllocaInst>(base)) {
        on_stack = true;
        continue;
      }
      if (llvm::isa<llvm::Constant>(base) && !access.stores) return std::nullopt;
      if (is_failure(base)) return std::nullopt;
      const std::optional<std::uint64_t> of_base = subject_of_base(base);
      if (!of_base && access.stores) refuse("a store to the launch arguments");
      if (!of_base) return std::nullopt;
      if (subject && subject != of_base) refuse("an access of two operands");
      subject = of_base;
    }
    if (!subject) return std::nullopt;
    return *subject | (access.stores ? BoundsChecker::kStores : 0) | (on_stack ? BoundsChecker::kOrStack : 0);
  }
  std::optional<std::uint64_t> subject_of_base(Value* base) {
    if (const auto found = origins_.find(base); found != origins_.end()) return found->second;
    if (base == e_.scratch) return BoundsChecker::kScratch;
    const auto* const load = llvm::dyn_cast<llvm::LoadInst>(base);
    if (load != nullptr && is_field(load->getPointerOperand(), offsetof(KernelLaunch, partials)))
      return BoundsChecker::kPartials;
    return std::nullopt;
  }
  bool is_failure(const Value* base) const {
    const auto* const load = llvm::dyn_cast<llvm::LoadInst>(base);
    return load != nullptr && is_field(load->getPointerOperand(), offsetof(KernelLaunch, failure));
  }
  bool is_field(const Value* address, std::size_t offset) const {
    const auto* const gep = llvm::dyn_cast<llvm::GetElementPtrInst>(address);
    if (gep == nullptr || gep->getPointerOperand() != e_.launch) return false;
    llvm::APInt distance(64, 0);
    return gep->accumulateConstantOffset(function_.getParent()->getDataLayout(), distance) && distance == offset;
  }
  /// What an address is made of.
  void add_bases(Value* address, std::set<Value*>& bases, std::set<Value*>& seen) {
    if (!seen.insert(address).second) return;
    if (origins_.contains(address)) {
      bases.insert(address);
    } else if (auto* const gep = llvm::dyn_cast<llvm::GEPOperator>(address)) {
      add_bases(gep->getPointerOperand(), bases, seen);
    } else if (auto* const phi = llvm::dyn_cast<llvm::PHINode>(address)) {
      for (Value* const from : phi->incoming_values()) add_bases(from, bases, seen);
    } else if (auto* const choice = llvm::dyn_cast<llvm::SelectInst>(address)) {
      add_bases(choice->getTrueValue(), bases, seen), add_bases(choice->getFalseValue(), bases, seen);
    } else if (llvm::isa<llvm::Argument, llvm::AllocaInst, llvm::LoadInst, llvm::Constant>(address)) {
      bases.insert(address);
    } else {
      refuse("an address of unknown origin");
    }
  }

  void add_call(const MemoryAccess& access, std::uint64_t subject) {
    llvm::IRBuilder<> b(access.instruction);
    const llvm::DataLayout& layout = function_.getParent()->getDataLayout();
    Type *const i64 = b.getInt64Ty(), *const pointer = b.getPtrTy();
    const bool scattered = access.address->getType()->isVectorTy();
    Value* mask = b.getInt64(1);
    std::uint64_t bytes = layout.getTypeStoreSize(access.type).getFixedValue();
    if (access.mask != nullptr) {
      const auto lanes = llvm::cast<llvm::FixedVectorType>(access.mask->getType())->getNumElements();
      mask = b.CreateZExt(b.CreateBitCast(access.mask, b.getIntNTy(lanes)), i64);
      bytes /= lanes;
    }
    Value* address = access.address;
    if (scattered) {
      llvm::IRBuilder<> at_entry(&function_.getEntryBlock(), function_.getEntryBlock().begin());
      llvm::AllocaInst* const lanes = at_entry.CreateAlloca(address->getType());
      lanes->setAlignment(llvm::Align(64));
      b.CreateAlignedStore(address, lanes, llvm::Align(64));
      address = lanes;
    }
    Value* const checker = function_.getArg(3);
    const std::size_t offset = scattered ? offsetof(BoundsChecker, scattered) : offsetof(BoundsChecker, adjacent);
    Value* const check =
        b.CreateAlignedLoad(pointer, b.CreateConstGEP1_64(b.getInt8Ty(), checker, offset), llvm::Align(8));
    auto* const type = llvm::FunctionType::get(b.getVoidTy(), {pointer, i64, pointer, i64, i64}, false);
    b.CreateCall(type, check, {checker, b.getInt64(subject), address, b.getInt64(bytes), mask});
  }

  const Emission& e_;
  llvm::Function& function_;
  std::map<Value*, std::uint64_t> origins_;
};

}  // namespace

void add_bounds_checks(const Emission& e) { BoundsChecks(e).add(); }

}  // namespace fermata::jit

// See code_builder.h.
#include "codegen_cpu/jit/code_builder.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace fermata::jit {

void refuse(const std::string& what) { throw std::runtime_error(what); }

const Isa* find_isa(std::string_view name, IsaExtras extras) {
  // The processor levels of the x86-64 psABI: what every machine of that level has, whoever made it.
  static constexpr auto kIsas = std::to_array<Isa>({{"avx512", "x86-64-v4", 512, 32, true, false, false},
                                                    {"avx512", "x86-64-v4", 512, 32, true, true, false},
                                                    {"avx512", "x86-64-v4", 512, 32, true, false, true},
                                                    {"avx512", "x86-64-v4", 512, 32, true, true, true},
                                                    {"avx2", "x86-64-v3", 256, 16, false}});
  const auto found = std::ranges::find_if(kIsas, [&](const Isa& isa) {
    return isa.name == name && (!isa.masks || (isa.gathers == extras.gathers && isa.bf16 == extras.bf16));
  });
  return found == kIsas.end() ? nullptr : &*found;
}

namespace {

Type* scalar_type(llvm::LLVMContext& context, DType dtype) {
  switch (info(dtype).kind) {
    case DTypeKind::boolean: return Type::getInt1Ty(context);
    case DTypeKind::unsigned_integer:
    case DTypeKind::signed_integer: return Type::getIntNTy(context, static_cast<unsigned>(8 * byte_size(dtype)));
    case DTypeKind::floating:
      if (dtype == DType::f32) return Type::getFloatTy(context);
      if (dtype == DType::f64) return Type::getDoubleTy(context);
      return Type::getInt16Ty(context);
    case DTypeKind::small_unsigned:
    case DTypeKind::small_signed:
    case DTypeKind::small_float: return Type::getInt8Ty(context);
    default: refuse("kernels of dtype " + std::string(name(dtype)) + " are not supported");
  }
}
Type* vector_of(Type* type, unsigned lanes) { return lanes == 1 ? type : llvm::FixedVectorType::get(type, lanes); }

}  // namespace

Type* value_type(llvm::LLVMContext& context, DType dtype, unsigned lanes) {
  return vector_of(scalar_type(context, dtype), lanes);
}
Type* memory_type(llvm::LLVMContext& context, DType dtype, unsigned lanes) {
  return vector_of(dtype == DType::boolean ? Type::getInt8Ty(context) : scalar_type(context, dtype), lanes);
}
unsigned lanes_of(const Value* value) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector == nullptr ? 1 : vector->getNumElements();
}

CodeBuilder::CodeBuilder(llvm::Function& function, const Isa& isa, unsigned lanes)
    : IRBuilder(llvm::BasicBlock::Create(function.getContext(), "entry", &function)), isa_(isa), lanes_(lanes) {}

CodeBuilder::LineScope::LineScope(CodeBuilder& b, unsigned line) : b_(b), before_(b.getCurrentDebugLocation()) {
  if (llvm::DISubprogram* const listed = b.GetInsertBlock()->getParent()->getSubprogram(); listed != nullptr)
    b.SetCurrentDebugLocation(llvm::DILocation::get(b.getContext(), line, 0, listed));
}

llvm::Constant* CodeBuilder::constant(DType dtype, std::uint64_t bits, unsigned lanes) {
  Type* const type = scalar_type(getContext(), dtype);
  const llvm::APInt raw = llvm::APInt(64, bits).trunc(type->getScalarSizeInBits());
  llvm::Constant* value = llvm::ConstantInt::get(getContext(), raw);
  if (type->isFloatingPointTy())
    value = llvm::ConstantFP::get(getContext(), llvm::APFloat(type->getFltSemantics(), raw));
  return lanes == 1 ? value : llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes), value);
}

llvm::Constant* CodeBuilder::integer_like(const Value* like, std::uint64_t value) {
  return llvm::ConstantInt::get(like->getType(), value);
}

Value* CodeBuilder::all(Value* lanes) {
  if (!lanes->getType()->isVectorTy()) return lanes;
  Type* const word = getIntNTy(lanes_of(lanes));
  return CreateICmpEQ(CreateBitCast(lanes, word), llvm::Constant::getAllOnesValue(word));
}

Value* CodeBuilder::choose(Value* condition, Value* a, Value* b) {
  if (const auto* known = llvm::dyn_cast<llvm::Constant>(condition)) {
    if (known->isAllOnesValue()) return a;
    if (known->isNullValue()) return b;
  }
  return CreateSelect(condition, a, b);
}

Value* CodeBuilder::half(Value* vector, unsigned which) {
  const unsigned count = lanes_of(vector) / 2;
  llvm::SmallVector<int, 32> lanes;
  for (unsigned i = 0; i < count; ++i) lanes.push_back(static_cast<int>(which * count + i));
  return CreateShuffleVector(vector, lanes);
}

Values CodeBuilder::interleaved(const Values& parts) {
  const auto count = static_cast<unsigned>(parts.size());
  const unsigned lanes = lanes_of(parts[0]);
  Values whole;
  if (count % 2 == 0 && count > 2) {
    Values even, odd;
    for (unsigned part = 0; part < count; ++part) (part % 2 == 0 ? even : odd).push_back(parts[part]);
    even = interleaved(even), odd = interleaved(odd);
    for (unsigned i = 0; i < even.size(); ++i) whole.append(interleaved({even[i], odd[i]}));
    return whole;
  }
  for (unsigned vector = 0; vector < count; ++vector) {
    Value* result = parts[0];
    for (unsigned part = 1; part < count; ++part) {
      llvm::SmallVector<int, 64> order;
      for (unsigned lane = 0; lane < lanes; ++lane) {
        const unsigned at = vector * lanes + lane, of = at % count, element = at / count;
        order.push_back(of == part  ? static_cast<int>(lanes + element)
                        : of > part ? -1
                                    : static_cast<int>(part == 1 ? element : lane));
      }
      result = CreateShuffleVector(result, parts[part], order);
    }
    whole.push_back(result);
  }
  return whole;
}

Value* CodeBuilder::joined(Values parts) {
  while (parts.size() > 1) {
    Values pairs;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      llvm::SmallVector<int, 64> order;
      for (unsigned lane = 0; lane < 2 * lanes_of(parts[i]); ++lane) order.push_back(static_cast<int>(lane));
      pairs.push_back(CreateShuffleVector(parts[i], parts[i + 1], order));
    }
    parts = pairs;
  }
  return parts[0];
}

Value* CodeBuilder::shifted_down(Value* vector, unsigned distance) {
  llvm::SmallVector<int, 32> lanes;
  for (unsigned i = 0; i < lanes_of(vector); ++i) lanes.push_back(i < distance ? static_cast<int>(i + distance) : -1);
  return CreateShuffleVector(vector, lanes);
}

llvm::Constant* CodeBuilder::lane_numbers() {
  llvm::SmallVector<std::uint64_t, 64> numbers;
  for (unsigned i = 0; i < lanes_; ++i) numbers.push_back(i);
  return llvm::ConstantDataVector::get(getContext(), numbers);
}

Value* CodeBuilder::bits_below(Value* count) {
  Value* const bounded = CreateBinaryIntrinsic(llvm::Intrinsic::smin, count, i64(64));
  return CreateIntrinsic(llvm::Intrinsic::x86_bmi_bzhi_64, {}, {getInt64(~std::uint64_t{0}), bounded});
}

/// In elements as wide as the mask will be used in.
std::pair<Value*, Value*> CodeBuilder::compared_lanes(Value* count, unsigned vector) {
  Type* const element = getIntNTy(isa_.vector_bits / lanes_);
  return {CreateTrunc(lane_numbers(), llvm::FixedVectorType::get(element, lanes_)),
          splat(CreateTrunc(lanes_below(count, vector), element))};
}

Values CodeBuilder::masks_below(Value* count, unsigned vectors) {
  Values masks;
  Value* bits = nullptr;
  for (unsigned v = 0; v < vectors; ++v) {
    if (isa_.masks) {  // bits of a word, moved to mask registers
      const unsigned first = v * lanes_, bit = first % 64;
      if (bit == 0)
        bits = bits_below(
            first == 0 ? count : CreateBinaryIntrinsic(llvm::Intrinsic::smax, CreateSub(count, i64(first)), i64(0)));
      Value* const lanes = CreateTrunc(bit == 0 ? bits : CreateLShr(bits, std::uint64_t{bit}), getIntNTy(lanes_));
      masks.push_back(CreateBitCast(lanes, llvm::FixedVectorType::get(getInt1Ty(), lanes_)));
    } else {
      const auto [numbers, end] = compared_lanes(count, v);
      masks.push_back(CreateICmpSLT(numbers, end));
    }
  }
  return masks;
}

Value* CodeBuilder::mask_of_first(Value* count, bool others) {
  if (isa_.masks) {
    Value* const bits = bits_below(count);
    Value* const lanes = CreateTrunc(others ? CreateNot(bits) : bits, getIntNTy(lanes_));
    return CreateBitCast(lanes, llvm::FixedVectorType::get(getInt1Ty(), lanes_));
  }
  const auto [numbers, end] = compared_lanes(count, 0);
  // Greater is what AVX2 compares: anything else is negated.
  return others ? CreateICmpSGT(numbers, CreateSub(end, integer_like(end, 1))) : CreateICmpSGT(end, numbers);
}

Value* CodeBuilder::lanes_below(Value* count, unsigned vector) {
  Value* rest = count;
  if (vector > 0) rest = CreateBinaryIntrinsic(llvm::Intrinsic::smax, CreateSub(count, i64(vector * lanes_)), i64(0));
  return CreateBinaryIntrinsic(llvm::Intrinsic::smin, rest, i64(lanes_));
}

llvm::AllocaInst* CodeBuilder::stack(Type* type, std::uint64_t count, unsigned alignment) {
  llvm::BasicBlock& entry = GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  llvm::AllocaInst* const slot = at_entry.CreateAlloca(type, at_entry.getInt64(count));
  slot->setAlignment(llvm::Align(alignment));
  return slot;
}

Value* CodeBuilder::load_value(Type* type, Value* address, std::uint64_t index) {
  const bool is_bool = type->getScalarType()->isIntegerTy(1);
  Type* const memory = is_bool ? type->getWithNewBitWidth(8) : type;
  Value* const loaded = CreateLoad(memory, element(memory, address, index));
  return is_bool ? CreateIsNotNull(loaded) : loaded;
}

void CodeBuilder::store_value(Value* value, Value* address, std::uint64_t index) {
  const bool is_bool = value->getType()->getScalarType()->isIntegerTy(1);
  Value* const memory = is_bool ? CreateZExt(value, value->getType()->getWithNewBitWidth(8)) : value;
  CreateStore(memory, element(memory->getType(), address, index));
}

namespace {

/// Blocks stand in the order in which they run.
void move_to_end(llvm::BasicBlock* block) {
  llvm::BasicBlock& last = block->getParent()->back();
  if (&last != block) block->moveAfter(&last);
}

}  // namespace

Values CodeBuilder::loop(Value* begin, Value* end, std::int64_t step, const Values& carried, LoopBody body) {
  const auto *const first = llvm::dyn_cast<llvm::ConstantInt>(begin), *const last =
                                                                          llvm::dyn_cast<llvm::ConstantInt>(end);
  const bool is_known = first != nullptr && last != nullptr;
  const std::int64_t distance = is_known ? last->getSExtValue() - first->getSExtValue() : 0;
  if (is_known && distance <= 0) return carried;
  if (is_known && distance <= step) return body(begin, carried);
  llvm::Function* const function = GetInsertBlock()->getParent();
  llvm::BasicBlock* const before = GetInsertBlock();
  auto* const inside = llvm::BasicBlock::Create(getContext(), "loop", function);
  auto* const after = llvm::BasicBlock::Create(getContext(), "end", function);
  if (is_known)
    CreateBr(inside);
  else
    CreateCondBr(CreateICmpSLT(begin, end), inside, after);

  SetInsertPoint(inside);
  llvm::PHINode* const index = CreatePHI(getInt64Ty(), 2);
  index->addIncoming(begin, before);
  Values current;
  for (Value* value : carried) {
    llvm::PHINode* const phi = CreatePHI(value->getType(), 2);
    phi->addIncoming(value, before);
    current.push_back(phi);
  }
  const Values next = body(index, current);
  llvm::BasicBlock* const latch = GetInsertBlock();
  Value* const advanced = CreateAdd(index, i64(step), "", true, true);
  index->addIncoming(advanced, latch);
  for (std::size_t i = 0; i < carried.size(); ++i) llvm::cast<llvm::PHINode>(current[i])->addIncoming(next[i], latch);
  CreateCondBr(CreateICmpSLT(advanced, end), inside, after);

  move_to_end(after);
  SetInsertPoint(after);
  if (is_known) return next;
  Values result;
  for (std::size_t i = 0; i < carried.size(); ++i) {
    llvm::PHINode* const phi = CreatePHI(carried[i]->getType(), 2);
    phi->addIncoming(carried[i], before);
    phi->addIncoming(next[i], latch);
    result.push_back(phi);
  }
  return result;
}

Values CodeBuilder::repeat_while(const Values& carried, Turn turn) {
  llvm::Function* const function = GetInsertBlock()->getParent();
  llvm::BasicBlock* const before = GetInsertBlock();
  auto* const inside = llvm::BasicBlock::Create(getContext(), "loop", function);
  auto* const after = llvm::BasicBlock::Create(getContext(), "end", function);
  CreateBr(inside);
  SetInsertPoint(inside);
  Values current;
  for (Value* value : carried) {
    llvm::PHINode* const phi = CreatePHI(value->getType(), 2);
    phi->addIncoming(value, before);
    current.push_back(phi);
  }
  Values next = current;
  Value* const again = turn(next);
  llvm::BasicBlock* const latch = GetInsertBlock();
  for (std::size_t i = 0; i < carried.size(); ++i) llvm::cast<llvm::PHINode>(current[i])->addIncoming(next[i], latch);
  CreateCondBr(again, inside, after);
  move_to_end(after);
  SetInsertPoint(after);
  return next;
}

Values CodeBuilder::either(Value* condition, Branch then, Branch otherwise) {
  llvm::Function* const function = GetInsertBlock()->getParent();
  auto* const first = llvm::BasicBlock::Create(getContext(), "then", function);
  auto* const second = llvm::BasicBlock::Create(getContext(), "else", function);
  auto* const after = llvm::BasicBlock::Create(getContext(), "end", function);
  CreateCondBr(condition, first, second);
  SetInsertPoint(first);
  const Values values = then();
  llvm::BasicBlock* const first_last = GetInsertBlock();
  CreateBr(after);
  move_to_end(second);
  SetInsertPoint(second);
  const Values others = otherwise();
  llvm::BasicBlock* const second_last = GetInsertBlock();
  CreateBr(after);
  move_to_end(after);
  SetInsertPoint(after);
  Values result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    llvm::PHINode* const phi = CreatePHI(values[i]->getType(), 2);
    phi->addIncoming(values[i], first_last);
    phi->addIncoming(others[i], second_last);
    result.push_back(phi);
  }
  return result;
}

Values CodeBuilder::when(Value* condition, const Values& otherwise, Branch then) {
  llvm::Function* const function = GetInsertBlock()->getParent();
  llvm::BasicBlock* const before = GetInsertBlock();
  auto* const inside = llvm::BasicBlock::Create(getContext(), "then", function);
  auto* const after = llvm::BasicBlock::Create(getContext(), "end", function);
  CreateCondBr(condition, inside, after);
  SetInsertPoint(inside);
  const Values values = then();
  llvm::BasicBlock* const last = GetInsertBlock();
  CreateBr(after);
  move_to_end(after);
  SetInsertPoint(after);
  Values result;
  for (std::size_t i = 0; i < otherwise.size(); ++i) {
    llvm::PHINode* const phi = CreatePHI(otherwise[i]->getType(), 2);
    phi->addIncoming(otherwise[i], before);
    phi->addIncoming(values[i], last);
    result.push_back(phi);
  }
  return result;
}

namespace {

void remove_unused_instructions(llvm::Function& function) {
  for (llvm::BasicBlock& block : llvm::reverse(function))
    for (llvm::Instruction& instruction : llvm::make_early_inc_range(llvm::reverse(block)))
      if (instruction.use_empty() && !instruction.mayHaveSideEffects() && !instruction.isTerminator())
        instruction.eraseFromParent();
}

}  // namespace

void remove_unused(llvm::Function& function) {
  remove_unused_instructions(function);  // else they would count as uses of what goes round in loops
  llvm::SmallVector<llvm::WeakTrackingVH, 32> phis;
  for (llvm::BasicBlock& block : function)
    for (llvm::PHINode& phi : block.phis()) phis.emplace_back(&phi);
  for (llvm::WeakTrackingVH& phi : llvm::reverse(phis))
    if (phi) llvm::RecursivelyDeleteDeadPHINode(llvm::cast<llvm::PHINode>(phi));
  remove_unused_instructions(function);
}

}  // namespace fermata::jit

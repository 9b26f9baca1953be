// An LLVM IR builder for kernels: the engine's dtypes, vectors of one fixed number of lanes, loops and lane masks.
//
// No IR pass runs afterwards, so what is built here is what is selected: loops are rotated, values that do not change
// in a loop are built before it, and nothing goes through memory that could stay in a register.
#pragma once

#include <string_view>

#include "codegen_cpu/jit/llvm.h"
#include "ir/dtype.h"

namespace fermata::jit {

using llvm::Type;
using llvm::Value;
using Values = llvm::SmallVector<Value*, 8>;

/// An instruction set that code can be made for.
struct Isa {
  std::string_view name;
  const char* cpu;  // LLVM's name of the processor level
  unsigned vector_bits;
  unsigned registers;  // vector registers
  bool masks;          // masked loads and stores of every element width, gathers and scatters
};
/// Null where there is none of that name.
const Isa* find_isa(std::string_view name);

/// The type of a program value: bool is i1, f16 and bf16 are their bits. Throws for complex and quantized dtypes.
Type* value_type(llvm::LLVMContext& context, DType dtype, unsigned lanes);
/// The type of an element in memory: as above, but bool is a byte.
Type* memory_type(llvm::LLVMContext& context, DType dtype, unsigned lanes);
unsigned lanes_of(const Value* value);

class CodeBuilder : public llvm::IRBuilder<> {
 public:
  /// While it lives, instructions come from a line of the description of the kernel; for listings only
  /// (line_marks.h).
  class LineScope {
   public:
    LineScope(CodeBuilder& b, unsigned line);
    ~LineScope() { b_.SetCurrentDebugLocation(before_); }
    LineScope(const LineScope&) = delete;
    LineScope& operator=(const LineScope&) = delete;

   private:
    CodeBuilder& b_;
    const llvm::DebugLoc before_;
  };

  CodeBuilder(llvm::Function& function, const Isa& isa, unsigned lanes);

  const Isa& isa() const { return isa_; }
  unsigned lanes() const { return lanes_; }

  Value* i64(std::int64_t value) { return getInt64(static_cast<std::uint64_t>(value)); }
  /// A constant of `dtype` from its bits.
  llvm::Constant* constant(DType dtype, std::uint64_t bits, unsigned lanes);
  /// A constant of the type (and lanes) of `like`.
  static llvm::Constant* integer_like(const Value* like, std::uint64_t value);
  Value* splat(Value* scalar) { return CreateVectorSplat(lanes_, scalar); }
  /// condition ? a : b, folded where the condition is a constant.
  Value* choose(Value* condition, Value* a, Value* b);
  Value* call(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> operands) {
    return CreateIntrinsic(id, {operands[0]->getType()}, operands);
  }
  /// Lower half (0) or upper half (1) of a vector.
  Value* half(Value* vector, unsigned which);
  /// Lane i becomes lane i - distance; the upper lanes hold anything.
  Value* shifted_down(Value* vector, unsigned distance);

  /// Lane numbers 0, 1, ... as i64.
  llvm::Constant* lane_numbers();
  /// The first `count` (i64, not negative) lanes of `vectors` vectors side by side, as a mask for each.
  Values masks_below(Value* count, unsigned vectors);
  /// How many lanes of vector number `vector` that is.
  Value* lanes_below(Value* count, unsigned vector);

  /// The address of element `index`.
  Value* element(Type* type, Value* address, std::uint64_t index) {
    return index == 0 ? address : CreateConstGEP1_64(type, address, index);
  }
  /// A stack slot, placed in the entry block.
  llvm::AllocaInst* stack(Type* type, std::uint64_t count, unsigned alignment);

  /// Bits of bool go through memory as bytes.
  Value* load_value(Type* type, Value* address, std::uint64_t index);
  void store_value(Value* value, Value* address, std::uint64_t index);

  using LoopBody = llvm::function_ref<Values(Value* index, const Values& carried)>;
  /// for (index = begin; index < end; index += step) carried = body(index, carried). Returns carried at the end.
  Values loop(Value* begin, Value* end, std::int64_t step, const Values& carried, LoopBody body);
  using Turn = llvm::function_ref<Value*(Values& carried)>;
  /// do carried = turn(carried) while what the turn returns holds. Returns carried at the end.
  Values repeat_while(const Values& carried, Turn turn);
  using Branch = llvm::function_ref<Values()>;
  /// Runs one of two branches.
  Values either(Value* condition, Branch then, Branch otherwise);
  /// Runs `then` where the condition holds; returns its values, else `otherwise`.
  Values when(Value* condition, const Values& otherwise, Branch then);

 private:
  /// The lowest `count` bits of a word; count is not negative.
  Value* bits_below(Value* count);

  const Isa& isa_;
  unsigned lanes_;
};

/// Removes values that nothing uses, among them those that only go round in loops.
void remove_unused(llvm::Function& function);

/// Throws what the plugin reports as "cannot compile": `what` completes the sentence.
[[noreturn]] void refuse(const std::string& what);

}  // namespace fermata::jit

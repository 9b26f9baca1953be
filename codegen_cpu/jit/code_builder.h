// An LLVM IR builder for kernels: the engine's dtypes, vectors of one fixed length, loops and lane masks.
//
// No IR pass runs afterwards, so instruction selection sees exactly this code: build loops rotated, hoist invariants,
// and keep values in registers.
#pragma once

#include <string_view>

#include "codegen_cpu/jit/llvm.h"
#include "ir/dtype.h"

namespace fermata::jit {

using llvm::Type;
using llvm::Value;
using Values = llvm::SmallVector<Value*, 8>;

/// An instruction set to generate code for.
struct Isa {
  std::string_view name;
  const char* cpu;  // LLVM's name of the processor level
  unsigned vector_bits;
  unsigned registers;    // vector registers
  bool masks;            // masked loads and stores of every element width, gathers and scatters
  bool gathers = false;  // a gather takes less than one load for each lane
  bool bf16 = false;     // instructions that round to bf16
};
/// What a processor has beside the instructions of its set.
struct IsaExtras {
  bool gathers = false, bf16 = false;
};
/// Returns null if the name is unknown.
const Isa* find_isa(std::string_view name, IsaExtras extras);

/// The LLVM type of a program value: bool is i1, f16 and bf16 are integers with their bits. Throws for complex and
/// quantized dtypes.
Type* value_type(llvm::LLVMContext& context, DType dtype, unsigned lanes);
/// The type of an element in memory: as above, but bool is a byte.
Type* memory_type(llvm::LLVMContext& context, DType dtype, unsigned lanes);
unsigned lanes_of(const Value* value);

class CodeBuilder : public llvm::IRBuilder<> {
 public:
  /// Attributes instructions to a line of the kernel description for a scope; for listings only (line_marks.h).
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
  /// Vectors of equal lengths, a power of two of them, as one.
  Value* joined(Values parts);
  Value* splat(Value* scalar) { return CreateVectorSplat(lanes_, scalar); }
  /// condition ? a : b, folded if the condition is constant.
  Value* choose(Value* condition, Value* a, Value* b);
  /// Whether a condition holds in all lanes, or of a scalar; one bit.
  Value* all(Value* lanes);
  Value* call(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> operands) {
    return CreateIntrinsic(id, {operands[0]->getType()}, operands);
  }
  /// Lower half (0) or upper half (1) of a vector.
  Value* half(Value* vector, unsigned which);
  /// The elements of several vectors, one of each after the other, in as many vectors.
  Values interleaved(const Values& parts);
  /// Shifts lane i to lane i - distance; the upper lanes are unspecified.
  Value* shifted_down(Value* vector, unsigned distance);

  /// Lane numbers 0, 1, ... as i64.
  llvm::Constant* lane_numbers();
  /// Masks for the first `count` (i64, not negative) lanes of `vectors` adjacent vectors, one mask per vector.
  Values masks_below(Value* count, unsigned vectors);
  /// The mask of the first `count` lanes of a vector, or of all others.
  Value* mask_of_first(Value* count, bool others);
  /// The number of these lanes in vector number `vector`.
  Value* lanes_below(Value* count, unsigned vector);

  /// The address of element `index`.
  Value* element(Type* type, Value* address, std::uint64_t index) {
    return index == 0 ? address : CreateConstGEP1_64(type, address, index);
  }
  /// A stack slot, placed in the entry block.
  llvm::AllocaInst* stack(Type* type, std::uint64_t count, unsigned alignment);

  /// Loads and stores convert bool between i1 and bytes.
  Value* load_value(Type* type, Value* address, std::uint64_t index);
  void store_value(Value* value, Value* address, std::uint64_t index);

  using LoopBody = llvm::function_ref<Values(Value* index, const Values& carried)>;
  /// for (index = begin; index < end; index += step) carried = body(index, carried). Returns carried at the end.
  Values loop(Value* begin, Value* end, std::int64_t step, const Values& carried, LoopBody body);
  using Turn = llvm::function_ref<Value*(Values& carried)>;
  /// do carried = turn(carried) while the value returned by turn is true. Returns carried at the end.
  Values repeat_while(const Values& carried, Turn turn);
  using Branch = llvm::function_ref<Values()>;
  /// Runs one of two branches.
  Values either(Value* condition, Branch then, Branch otherwise);
  /// Runs `then` if the condition is true and returns its values; otherwise returns `otherwise`.
  Values when(Value* condition, const Values& otherwise, Branch then);

 private:
  /// The lowest `count` bits of a word; count is not negative.
  Value* bits_below(Value* count);
  /// Lane numbers of a vector, and what those of its lanes below `count` are less than.
  std::pair<Value*, Value*> compared_lanes(Value* count, unsigned vector);

  const Isa& isa_;
  unsigned lanes_;
};

/// Removes dead values, including cycles of loop-carried values.
void remove_unused(llvm::Function& function);

/// Throws an error that the plugin reports as "cannot compile": `what` completes the sentence.
[[noreturn]] void refuse(const std::string& what);

}  // namespace fermata::jit

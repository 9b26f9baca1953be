// What the three shapes of kernel share while machine code for one is built: the launch, the loop over rows, groups of
// vectors along the vector axis, stores.
#pragma once

#include "codegen_cpu/jit/accesses.h"
#include "codegen_cpu/jit/evaluator.h"
#include "codegen_cpu/jit/spilled_values.h"
#include "ir/kernel.h"

namespace fermata::jit {

/// Groups of `width` vectors. The rest of a row is handled vector by vector by a second copy of the code; or every
/// group is masked, and there is only one copy: for long programs, where masks cost next to nothing and copies cost
/// time to compile, and where compiling has to be quick.
struct GroupPlan {
  unsigned width;
  bool masked;
};

/// Which code for a kernel.
struct CodeVariant {
  std::uint64_t streamed;  // bit i: store i goes past the caches
  bool wide;               // for speed: copies of the program side by side; else for quick compiling
  bool checked = false;    // every load and store is checked
  bool turned = false;     // a column kernel that reduces up to kReductionLanes elements by the tree of a row kernel
  bool listed = false;     // instructions know their lines (line_marks.h)
};

struct Emission {
  Emission(llvm::Function& function, const Kernel& kernel, const Isa& isa, CodeVariant variant);

  const Kernel& kernel;
  KernelSchedule schedule;
  const SpilledValues kept;
  const std::uint64_t streamed;  // bit i: store i goes past the caches
  const bool wide;
  const bool turned;
  CodeBuilder b;
  Value* const launch;
  Value* const part;  // jit::Part
  Value* const room;  // for kept values
  Accesses accesses;
  Evaluator evaluator;
  Value *row_begin, *row_end, *column_begin, *column_end;
  Value* row = nullptr;                       // the number of the row, inside of rows()
  Environment at_entry;                       // what depends on scalars and constants only
  unsigned room_columns = 1, room_lanes = 1;  // see ObjectInfo

  unsigned vector_axis() const { return kernel.rank - 1u; }
  /// Reduced axes other than the vector axis, outer to inner.
  llvm::SmallVector<unsigned, 4> outer_reduced_axes() const;
  Value* product(const llvm::SmallVector<Digit, 4>& digits);

  /// Calls `body` for each row of the launch, with its addresses and what is known there.
  void rows(llvm::function_ref<void(const Values& addresses, Environment& env)> body);
  /// Cuts [begin, end) of the vector axis into groups. Where one of `stores` is streamed, the first groups lead up to
  /// where it is aligned.
  void columns(const std::vector<std::uint16_t>& stores, const Values& addresses, Value* begin, Value* end,
               GroupPlan plan, llvm::function_ref<void(const Span& span, unsigned width)> body);
  /// Cuts [begin, end) of the vector axis into groups.
  void columns(Value* begin, Value* end, GroupPlan plan,
               llvm::function_ref<void(const Span& span, unsigned width)> body, bool aligned = false);
  /// A span of which `left` (at least 1) elements exist.
  Span partial_span(Value* index, Value* left, unsigned width);
  /// Lays out the room for kept values; in column kernels for groups of at most so many columns, in steps of `lanes`.
  void add_room(unsigned columns, unsigned lanes);
  /// Performs the stores of a stage for a group, those of kept values too.
  void element_stores(const KernelSchedule::Stage& stage, const Environment& env, const Group& group);
  /// Performs stores (indices into kernel.stores) for a group.
  void store(const std::vector<std::uint16_t>& stores, const Environment& env, const Group& group);
  const SpilledValues::Stage& kept_in(const KernelSchedule::Stage& stage) const;
  /// What is known at the start of a stage.
  void enter(const KernelSchedule::Stage& stage, Environment& env) const;

  /// How to group these values of a stage, `reserved` registers being taken.
  GroupPlan group_plan(const KernelSchedule::Stage& stage, unsigned reserved, unsigned limit) const;
  /// Vectors to have side by side at least, in code for speed: fewer leave the processor waiting for one operation
  /// after the other, and spilling some values costs less (AVX2: gelu 0.65, logarithms 0.55, softmax(gelu(x)) 0.75 of
  /// the time of one vector). Of rows of programs shorter than gelu the processor overlaps several vectors by itself.
  unsigned least_width() const;
  /// Whether so many instructions are worth their time to compile: up to `few` always, up to `many` in wide code.
  bool affords(unsigned instructions, unsigned few, unsigned many) const;
  /// Whether groups of a stage are rather all masked than that there is a second copy for the rest: in code that shall
  /// compile quickly.
  bool prefers_one_copy(const KernelSchedule::Stage& stage) const;
  /// Whether the processor can load and store some of the lanes of all that a stage needs.
  bool has_masked(const KernelSchedule::Stage& stage) const;
  /// Values of a stage that are vectors.
  unsigned vector_count(const KernelSchedule::Stage& stage) const;
};

/// Lanes of one vector of the kernel: as many as the widest element that is common in it fills a register with.
unsigned choose_lanes(const Kernel& kernel, const Isa& isa);

void emit_map_kernel(Emission& e);
void emit_row_kernel(Emission& e);
void emit_column_kernel(Emission& e);

/// Defines kEntrySymbol and kInfoSymbol in a module.
void emit_kernel(llvm::Module& module, const Kernel& kernel, const Isa& isa, CodeVariant variant);

}  // namespace fermata::jit

// State shared by the emitters of the three kernel shapes: the launch, the row loop, groups of vectors along the vector
// axis, and stores.
#pragma once

#include <map>
#include <span>

#include "codegen_cpu/jit/accesses.h"
#include "codegen_cpu/jit/evaluator.h"
#include "codegen_cpu/jit/narrow_sums.h"
#include "codegen_cpu/jit/spilled_values.h"
#include "ir/kernel.h"

namespace fermata::jit {

/// Processes `width` vectors per iteration. The remainder of a row runs in a second copy of the code, one vector at a
/// time; if `masked`, every group is masked instead and there is one copy. Masking is used for long programs, where
/// masks are cheap and copies take compile time, and where compilation must be quick.
struct GroupPlan {
  unsigned width;
  bool masked;
};

/// Variants of a kernel's code.
struct CodeVariant {
  std::uint64_t streamed;  // bit i: store i is non-temporal
  bool wide;               // optimized for speed by interleaving copies of the program; else for compile time
  bool checked = false;    // with bounds checks
  bool turned = false;     // a column kernel that reduces up to kReductionLanes elements by the tree of a row kernel
  bool listed = false;     // instructions have line numbers (line_marks.h)
};

/// A transposed operand, and a place on the stack for what a tile reads of it, in rows.
struct TurnedOperand {
  unsigned access;
  Value* tile;
};

struct Emission {
  Emission(llvm::Function& function, const Kernel& kernel, const Isa& isa, CodeVariant variant);

  const Kernel& kernel;
  KernelSchedule schedule;
  const SpilledValues kept;
  const std::uint64_t streamed;  // bit i: store i is non-temporal
  const bool wide;
  const bool turned;
  const bool checked;
  const NarrowSums narrow_sums;
  CodeBuilder b;
  Value* const launch;
  Value* const part;     // jit::Part
  Value* const scratch;  // for kept values
  Accesses accesses;
  Evaluator evaluator;
  Value *row_begin, *row_end, *column_begin, *column_end;
  Value* row = nullptr;                             // the row number, inside rows()
  std::map<std::uint16_t, Value*> interleaved;      // by the first of several stores: whether they are at this launch
  Environment at_entry;                             // values that depend only on scalars and constants
  unsigned scratch_columns = 1, scratch_lanes = 1;  // see ObjectInfo

  unsigned vector_axis() const { return kernel.rank - 1u; }
  /// Reduced axes other than the vector axis, outer to inner.
  llvm::SmallVector<unsigned, 4> outer_reduced_axes() const;
  Value* product(const llvm::SmallVector<Digit, 4>& digits);

  /// Calls `body` for each row of the launch, with its addresses and the values known there.
  void rows(llvm::function_ref<void(const Values& addresses, Environment& env)> body);
  /// Cuts [begin, end) of the vector axis into groups for a stage that loads and stores at `addresses`. If one of its
  /// stores is streaming, the first groups peel iterations until it is aligned. If something is compared with positions
  /// (edges.h), groups end where that changes.
  void columns(const KernelSchedule::Stage& stage, const Environment& env, const Values& addresses, Value* begin,
               Value* end, GroupPlan plan, llvm::function_ref<void(const Span& span, unsigned width)> body);
  /// Cuts [begin, end) of the vector axis into groups.
  void columns(Value* begin, Value* end, GroupPlan plan,
               llvm::function_ref<void(const Span& span, unsigned width)> body, bool aligned = false);
  /// The part of [begin, end) that groups of `width` vectors, a power of two, fill. Returns its end.
  Value* whole_columns(Value* begin, Value* end, unsigned width,
                       llvm::function_ref<void(const Span& span, unsigned width)> body, bool aligned = false);
  bool cuts_at_edges(const KernelSchedule::Stage& stage, GroupPlan plan) const;
  void columns_between_edges(const KernelSchedule::Stage& stage, const Environment& env, const Values& addresses,
                             Value* begin, Value* end, unsigned width,
                             llvm::function_ref<void(const Span& span, unsigned width)> body, bool aligned);
  /// A span with `left` (at least 1) active elements.
  Span partial_span(Value* index, Value* left, unsigned width);
  /// Lays out the scratch for kept values; in column kernels for groups of at most `columns` columns, in multiples of
  /// `lanes`.
  void add_scratch(unsigned columns, unsigned lanes);
  /// Performs the stores of a stage for a group, including kept values.
  void element_stores(const KernelSchedule::Stage& stage, const Environment& env, const Group& group);
  bool are_halves(std::uint16_t store, std::uint16_t next) const;
  /// How many of `stores` from number `first` on may lie between each other: 2 to 4, or 1.
  unsigned interleaved_from(const std::vector<std::uint16_t>& stores, std::size_t first) const;
  /// Performs stores (indices into kernel.stores) for a group.
  void store(const std::vector<std::uint16_t>& stores, const Environment& env, const Group& group);
  void store_interleaved(std::span<const std::uint16_t> stores, const Environment& env, const Group& group);
  void store_one(std::uint16_t store, const Environment& env, const Group& group);
  /// To be called at the entry.
  void find_interleaved_stores();
  const SpilledValues::Stage& kept_in(const KernelSchedule::Stage& stage) const;
  /// Sets up the values known at the start of a stage.
  void enter(const KernelSchedule::Stage& stage, Environment& env) const;

  /// Operands that may lie in order along an axis, not along the vector axis, so that tiles of them may be turned; with
  /// a place on the stack for `elements` of each.
  std::vector<TurnedOperand> turned_operands(unsigned axis, std::int64_t elements);

  /// Chooses the grouping for a stage, with `reserved` registers in use.
  GroupPlan group_plan(const KernelSchedule::Stage& stage, unsigned reserved, unsigned limit) const;
  /// The minimum number of interleaved vectors in code for speed. With fewer, the processor stalls on dependent
  /// operations, which costs more than spilling some values (AVX2: gelu 0.65, logarithms 0.55, softmax(gelu(x)) 0.75 of
  /// the time of one vector). For rows of programs shorter than gelu, out-of-order execution overlaps several vectors
  /// without interleaving.
  unsigned least_width() const;
  /// Whether this is code for blocks of columns, too: only where the kernel is used much.
  bool splits_columns() const { return wide && !turned && can_split_columns(kernel, schedule); }
  /// Whether `instructions` are worth their compile time: up to `few` always, up to `many` in wide code.
  bool affords(unsigned instructions, unsigned few, unsigned many) const;
  /// Whether a stage masks all groups instead of emitting a second copy for the remainder, to compile quickly.
  bool prefers_one_copy(const KernelSchedule::Stage& stage) const;
  /// Whether the target has masked loads and stores for all accesses of a stage.
  bool has_masked(const KernelSchedule::Stage& stage) const;
  /// The number of values of a stage that are vectors.
  unsigned vector_count(const KernelSchedule::Stage& stage) const;
};

/// The vector length of the kernel: the number of lanes that fill a register with the widest common element type.
unsigned choose_lanes(const Kernel& kernel, const NarrowSums& sums, const Isa& isa);

void emit_map_kernel(Emission& e);
void emit_row_kernel(Emission& e);
void emit_column_kernel(Emission& e);

/// Defines kEntrySymbol and kInfoSymbol in a module.
void emit_kernel(llvm::Module& module, const Kernel& kernel, const Isa& isa, CodeVariant variant);

}  // namespace fermata::jit

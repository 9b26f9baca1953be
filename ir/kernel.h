// The kernel description: the input of code generators.
//
// A kernel is a loop nest over a domain of `rank` axes, outer to inner. Each access maps a point of the domain to an
// element of one tensor argument by strides, which are arguments too. The program defines the computation at each
// point; `input` reads an access, stores write one. Axes in `reduced` are reduced by the reductions. A value that
// depends on a load or offset that varies along a reduced axis is at *element* level; one that depends only on
// `reduced` results, scalars and accesses broadcast over all reduced axes is at *row* level. Reductions may depend on
// earlier reductions: schedule() splits the work into stages, each one pass over the reduced axes of a row. softmax has
// three. Sizes, strides and scalar values are not part of the description, so new ones never cause a compilation.
//
// The last axis is the vector axis. If it is reduced the kernel is a *row kernel* (lanes run along the reduction), else
// lanes run along the last parallel axis.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/dtype.h"
#include "ir/scalar_program.h"
#include "ir/shape.h"

namespace fermata {

/// Reduction trees, which are independent of vector width, threads and fusion. A lane tree starts each of its
/// kReductionLanes lanes at the identity; item i goes to lane i % kReductionLanes by lane = combine(lane, item), in
/// order; lanes are then merged by halves: lane[i] = combine(lane[i], lane[i + half]) for half = 32, 16, ... 1.
inline constexpr unsigned kReductionLanes = 64;
/// In a row kernel a block is up to this many elements along the vector axis within one iteration of the outer reduced
/// axes. Blocks are numbered in order over (outer reduced axes row-major, position along the vector axis). Each block
/// is reduced by a lane tree (item i is the block's element i). One block: its result. More: a second lane tree whose
/// item j is block j. None (an empty reduction): the identity.
inline constexpr std::int64_t kReductionBlock = 8192;
/// In a column kernel (vector axis parallel) a block is up to this many steps of the innermost reduced axis within one
/// iteration of the outer reduced axes. Each block starts at the identity and takes its steps in order: acc =
/// combine(acc, item). One block: its result. More: total = combine(total, block) in order, from the identity.
inline constexpr std::int64_t kColumnBlock = 128;

/// Which half of the numbers along the vector axis an access is, if they are complex and lie one after the other: its
/// stride along that axis is 2 elements, and the other half lies between.
enum class Half : std::uint8_t { none, real, imaginary };

/// A tensor argument of the loop nest.
struct Access {
  DType dtype;                // in memory; bool is one byte, 0 or 1
  std::uint16_t axes = 0;     // bit d: the stride along domain axis d may be non-zero; clear bits are broadcast
  bool unit_stride = false;   // the stride along the vector axis is 1 element (only with its bit in `axes`)
  bool address_only = false;  // used only by Prim::offset and Prim::position: no pointer; strides give the offset
  Half half = Half::none;     // only without the two above
  bool gathered = false;      // used only by Prim::gather, which may read any element behind the one at this point
  bool guarded = false;       // used only by Prim::guarded_input: not at every point there is an element
  bool operator==(const Access&) const = default;
  /// Whether neighbors along the vector axis are neighbors in memory, or nearly so.
  bool is_in_order() const { return unit_stride || half != Half::none; }
};

/// A monoid with a state of one or more components. Each element contributes `lifted`; states merge by `combine`, whose
/// parameters are the components of the left state, then of the right one; `identity` holds constant bits.
struct Reduction {
  std::vector<ValueId> lifted;
  std::vector<DType> types;
  std::vector<std::uint64_t> identity;
  Formula combine;
};

struct Store {
  std::uint16_t access;
  ValueId value;
  bool operator==(const Store&) const = default;
};

struct Kernel {
  std::uint8_t rank = 1;         // at least 1
  std::uint16_t reduced = 0;     // axes that the reductions reduce
  std::vector<Access> accesses;  // an access may be both read and stored only if every read is of the stored element
  std::vector<DType> scalars;    // each in an 8-byte slot
  ScalarProgram program;
  std::vector<Reduction> reductions;
  std::vector<Store> stores;

  bool is_reduced(unsigned axis) const { return (reduced >> axis & 1u) != 0; }
  bool is_row_kernel() const { return is_reduced(rank - 1u); }
};

/// The order of evaluation, derived from the kernel so that every backend agrees. A store runs at each point if its
/// access varies along a reduced axis (or nothing is reduced), else once per row. Per-point stores are in the first
/// stage in which their value is known, after the stages of all reductions it depends on; per-row stores follow the
/// stage that completes their value. In a kernel without reductions only values that vary along no axis (constants,
/// scalars, accesses without axes) are at row level. In a column kernel a "row" is one lane: row-level values may vary
/// along the vector axis. Dead values are omitted.
struct KernelSchedule {
  struct Stage {
    std::vector<ValueId> element_values;    // program values computed at each point, in order (recomputed per stage)
    std::vector<std::uint16_t> reductions;  // completed by this stage
    std::vector<std::uint16_t> element_stores;  // indices into Kernel::stores, executed at each point
    std::vector<ValueId> row_values;            // computed after the stage, once per row, in order
    std::vector<std::uint16_t> row_stores;      // executed after row_values
  };
  std::vector<ValueId> row_prologue;  // row-level values that need no reduction, computed before the first stage
  std::vector<Stage> stages;          // at least one; a kernel without reductions has exactly one, all at element level
  std::vector<bool> row_level;        // per program value
};
KernelSchedule schedule(const Kernel& kernel);

/// Throws InternalError if the description breaks one of its rules. Called by tests, the verifier and FERMATA_VERIFY=1.
void verify(const Kernel& kernel);

/// Prints a kernel; equal kernels print equal text.
std::string to_string(const Kernel& kernel);

/// Serializes a kernel exactly, for the kernel cache and the LLVM plugin. Equal kernels give equal bytes.
std::string serialize(const Kernel& kernel);
Kernel deserialize_kernel(std::string_view bytes);

/// What becomes of a launch with a Prim::position out of range. It runs to its end.
struct LaunchFailure {
  std::uint8_t failed = 0;  // 1: at least one is out of range
  /// By interpret() only: the first value of the program that was, what it was given at the first such point, and the
  /// number of that position.
  ValueId value = kNoValue;
  std::int64_t position = 0, number = 0;
};

/// The arguments of a launch. It covers rows [row_begin, row_end) of the linear index over the parallel axes
/// (row-major, without a parallel vector axis) and, if the vector axis is parallel, elements [column_begin, column_end)
/// of it. Callers split the ranges over threads; column_begin is a multiple of 64.
struct KernelLaunch {
  void* const* pointers;         // one per access, to its element at the origin (may be null if address_only)
  const std::int64_t* sizes;     // rank
  const std::int64_t* strides;   // per access: rank strides in elements
  const std::int64_t* offsets;   // per access, used only if address_only: offset at the origin
  const std::uint64_t* scalars;  // one 8-byte slot per scalar
  std::int64_t row_begin, row_end;
  std::int64_t column_begin, column_end;
  void* partials = nullptr;          // split launches only, aligned to 64 bytes: see Executable
  LaunchFailure* failure = nullptr;  // of programs with Prim::position
};

/// The number of blocks of one row's reduction for these sizes (see kReductionBlock and kColumnBlock).
std::int64_t reduction_blocks(const Kernel& kernel, const std::int64_t* sizes);
/// True for row kernels of a single stage: their blocks can run separately, see Executable. What they store at each
/// point they store with its block.
bool can_split(const Kernel& kernel, const KernelSchedule& schedule);
/// The same for kernels over columns, without stores at each point.
bool can_split_columns(const Kernel& kernel, const KernelSchedule& schedule);

/// Whether a primitive depends on where an access is at a point.
inline bool has_access(Prim prim) {
  return prim == Prim::input || prim == Prim::offset || prim == Prim::gather || prim == Prim::guarded_input;
}
/// Whether a launch may fail.
bool has_positions(const Kernel& kernel);
/// From the element of a gathered access at a point to the last one that it may read, in elements: the offset of the
/// last position on the axis. nullopt if the axis has none, so that nothing is read. Programs have no other offsets:
/// see gathered_axis().
std::optional<std::int64_t> gathered_reach(const Kernel& kernel, std::uint16_t access, const KernelLaunch& launch);
/// The axis that a Prim::gather reads along: its offset is a Prim::position, or the product of one and `step`. Both are
/// constants, or offsets of accesses without axes. nullopt if the offset is something else.
struct GatheredAxis {
  ValueId size, step;  // no step: 1
};
std::optional<GatheredAxis> gathered_axis(const Kernel& kernel, const Instr& gather);

/// Runs a kernel description element by element with the same reduction trees. Defines the semantics of kernels and is
/// the oracle for code generators. Any dtype; slow.
void interpret(const Kernel& kernel, const KernelLaunch& launch);
/// Only checks the positions of a launch without points, on axes of other elements: they are as those of a launch that
/// has one for each empty axis.
void interpret_positions(const Kernel& kernel, const KernelLaunch& launch);
/// interpret() in two steps, if can_split(): blocks [column_begin, column_end) of row row_begin, then the merge of all
/// its blocks. `partials` points to the state of block 0: one 8-byte slot per component of each reduction.
std::size_t interpret_state_bytes(const Kernel& kernel);
void interpret_partial(const Kernel& kernel, const KernelLaunch& launch);
void interpret_finish(const Kernel& kernel, const KernelLaunch& launch);

}  // namespace fermata

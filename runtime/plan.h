// Plans: what a compiled graph does, for any sizes.
//
// A plan speaks of *records*, the numbers of nodes in a walk with the plan's key: they carry sizes, attributes and
// scalars. It holds no tensors and is shared by threads. runtime/bound_plan.h binds it to the sizes at hand and runs
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/key_set.h"
#include "runtime/executable.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// A buffer of a plan.
struct PlanSlot {
  enum class Kind : std::uint8_t {
    leaf,
    output,
    temporary,
    position,  // no memory: an index, counted over the axes in `mask` of the record's shape
  };
  Kind kind;
  std::uint32_t record;  // whose sizes and dtype it has
  std::uint16_t mask = 0;
  std::uint32_t first_step = 0, last_step = 0;  // temporaries: when they are alive
  bool is_owned = false;                        // read by a boxed call: a buffer of its own, not a place in the arena
  bool is_given = false;                        // the result of a boxed call: the buffer that the kernel gives
};

/// One step of the way from a buffer to whoever reads it.
struct PathStep {
  enum class Kind : std::uint8_t {
    view,     // apply the view op of `record`
    stretch,  // broadcast to the sizes of `record`, aligned to the right
    insert,   // insert an axis of stride 0 at every bit of `mask`
  };
  Kind kind;
  std::uint32_t record = 0;
  std::uint16_t mask = 0;
  bool operator==(const PathStep&) const = default;
};

/// A buffer as an operand sees it: nearest step to the buffer first.
struct PlanSource {
  std::uint32_t slot = 0;
  std::vector<PathStep> path;
  bool operator==(const PlanSource&) const = default;
};

struct ScalarSource {
  std::uint32_t record = 0;
  std::uint16_t index = 0;
  bool operator==(const ScalarSource&) const = default;
};

/// A run of adjacent axes of the domain that is one axis of the kernel.
struct AxisRun {
  std::uint8_t first, last;
};

struct PlanStep {
  enum class Kind : std::uint8_t { kernel, call };
  Kind kind;
  std::uint32_t record;             // kernel: the domain's; call: the op's
  std::vector<PlanSource> sources;  // kernel: one per access, stores too; call: operands (scalars have their own list)
  std::vector<ScalarSource> scalars;

  // kernel
  std::shared_ptr<const Executable> executable;
  std::vector<AxisRun> axes;
  std::vector<std::size_t> element_bytes;  // per access; 0 where only the address counts
  std::uint16_t reduced = 0;               // of the kernel's axes
  bool on_tiles = false;                   // may run on each tile of the call step before it, see passes/finish_tiles.h
  double ns_per_point = 0.3;

  // call
  Op op = Op::input;
  DType operand_dtype = DType::f32;
  DType output_dtype = DType::f32;
  BackendKey backend = BackendKey::cpu;
  std::source_location where{};
  std::vector<DType> source_dtypes;
  std::vector<std::int32_t> operand_order;  // >= 0: sources[k], < 0: scalars[-1 - k]
  PlanSource output;
  bool beside = false;         // may run as one call with the step before it, see passes/gather_calls.h
  std::uint32_t context = 0;   // of a boxed call, as in ir/graph.h
  bool is_boxed = false;       // a kernel over tensors, which may keep its operands and gives a buffer of its own
  bool on_row_blocks = false;  // may run on each block of rows of the two steps before it, see passes/join_rows.h

  std::string name;  // for traces: "softmax_0", "matmul"
};

/// The access of a kernel that is about a slot; kNoAccess where there is none or more than one.
inline constexpr std::uint16_t kNoAccess = 0xffff;
std::uint16_t access_of(const PlanStep& kernel, std::uint32_t slot);

/// An output that may be written where a leaf lies: nothing reads the leaf after the step that writes the output, which
/// reads each of its elements no later than it writes it; and no later step can fail.
struct Overwrite {
  std::uint32_t output, leaf;  // numbers in Plan::output_slots and Plan::leaf_slots
  std::uint32_t step;          // from which on the leaf is no more
  std::uint32_t domain;        // the record whose sizes both must have
};

/// A temporary that may lie where an output does, if both have the same sizes: only the kernel step that writes the
/// output reads it, each element no later than it writes it.
struct SharedPlace {
  std::uint32_t temporary, output;  // slots
};

/// A number that no other plan of the process has.
inline std::uint64_t new_plan_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

struct Plan {
  const std::uint64_t number = new_plan_number();
  std::vector<std::uint32_t> key;
  std::vector<PlanSlot> slots;
  std::vector<PlanStep> steps;
  std::vector<std::uint32_t> leaf_slots, leaf_records;      // in the order of the walk's leaves that are read
  std::vector<std::uint32_t> output_slots, output_records;  // in the order of the walk's outputs
  std::vector<Overwrite>
      overwrites;  // by passes/plan_memory.h, in order of steps: any of them, each leaf and output once
  std::vector<SharedPlace> shared_places;  // by passes/plan_memory.h
  BackendKey backend = BackendKey::cpu;    // of every step and buffer
  bool compiled = true;                    // false: every op is a call step (first sight)
  std::string listing;                     // what explain prints of kernels and choices
  mutable std::atomic<std::uint32_t> runs{0};
};

}  // namespace fermata

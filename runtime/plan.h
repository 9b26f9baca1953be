// Plans: compiled graphs, valid for all sizes.
//
// A plan refers to *records*, the numbers of nodes in a walk with the plan's key, which carry sizes, attributes and
// scalars. It holds no tensors and is shared by threads. runtime/bound_plan.h binds it to the sizes of a walk and runs
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/key_set.h"
#include "runtime/backend_capabilities.h"
#include "runtime/steps/step.h"

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
  std::uint32_t record;  // gives its sizes and dtype
  std::uint16_t mask = 0;
  std::uint32_t first_step = 0, last_step = 0;  // its lifetime
  bool is_owned = false;                        // read by a boxed call: has its own buffer, not a part of the arena
  bool is_given = false;                        // the result of a boxed call: the buffer is provided by the kernel
  bool channels_last = false;                   // its second axis lies innermost (ir/channels_last.h)
};

/// An output that may overwrite a leaf: nothing reads the leaf after the step that writes the output, that step reads
/// each element no later than it writes it, and no later step can fail.
struct Overwrite {
  std::uint32_t output, leaf;  // numbers in Plan::output_slots and Plan::leaf_slots
  std::uint32_t step;          // the leaf is dead from here on
  std::uint32_t domain;        // both must have the sizes of this record
};

/// A temporary that may share the buffer of an output, or of another temporary of the same channels-last layout, if
/// both have the same sizes: only the kernel step that writes the other reads it, each element no later than it writes
/// it.
struct SharedPlace {
  std::uint32_t temporary, output;  // slots
};

/// A number that is unique among the plans of the process.
inline std::uint64_t new_plan_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

struct Plan {
  const std::uint64_t number = new_plan_number();
  std::vector<std::uint32_t> key;
  std::vector<PlanSlot> slots;
  std::vector<PlanStep> steps;
  std::vector<ScalarSource> scalars;                        // of all steps
  std::vector<std::uint32_t> leaf_slots, leaf_records;      // the leaves that are read, in the order of the walk
  std::vector<std::uint32_t> output_slots, output_records;  // in the order of the walk's outputs
  /// By passes/plan_memory.h, in order of steps. Any subset may be used; each leaf and output occurs once.
  std::vector<Overwrite> overwrites;
  std::vector<SharedPlace> shared_places;  // by passes/plan_memory.h
  BackendKey backend{};                    // of every step and buffer
  BackendCapabilities capabilities;        // of that backend
  std::string listing;                     // the kernels and choices, for explain()

  /// Whether the steps include kernels over tensors.
  bool has_boxed_calls() const {
    for (const PlanStep& step : steps)
      if (std::holds_alternative<BoxedCallStep>(step)) return true;
    return false;
  }
};

}  // namespace fermata

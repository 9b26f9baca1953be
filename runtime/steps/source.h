// Where steps of a plan read and write: slots, and the way from a slot to whoever reads it.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace fermata {

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

/// Some neighbors in Plan::scalars.
struct ScalarRange {
  std::uint32_t first = 0, count = 0;
};

/// What kernel steps and call steps have in common.
struct StepPart {
  std::uint32_t record = 0;                // of a kernel's domain; a call's own
  std::vector<PlanSource> sources;         // of a kernel one per access, stores too; of a call its operands but scalars
  std::vector<std::size_t> element_bytes;  // per source; 0 where only the address counts
  ScalarRange scalars;
  std::string name;  // for traces: "softmax_0", "matmul"
  std::source_location where{};
};

}  // namespace fermata

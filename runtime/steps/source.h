// The operands of plan steps: slots, and the path from a slot to its reader.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace fermata {

/// One step of the path from a buffer to its reader.
struct PathStep {
  enum class Kind : std::uint8_t {
    view,     // apply the view op of `record`
    stretch,  // broadcast to the sizes of `record`, aligned to the right
    insert,   // insert an axis of stride 0 at every bit of `mask`
    after,    // leave out as many indices along axis `mask` as `record` has, from the first
    part,     // take as many along axis `mask` as `record` has
    drop,     // leave out axis `mask`, which has one element
    half,     // the real parts of complex elements, or the imaginary ones if `mask` is 1: elements of half the size
    // Of what `record` reads along axis `mask` at positions:
    gathered,  // its elements at the first position, with the axes of `record`
    step,      // no memory, but a number: the distance from one position to the next
    // Of part of what `record` joins:
    before,   // begin as many indices along axis `mask` before the first as `record` has
    widened,  // with the sizes of `record`
    // No memory, but a number:
    size,  // of `record` along axis `mask`
    plus,  // and that of another `record`
  };
  Kind kind;
  std::uint32_t record = 0;
  std::uint16_t mask = 0;
  bool operator==(const PathStep&) const = default;
};

/// A buffer as seen by an operand: the step nearest to the buffer first.
struct PlanSource {
  std::uint32_t slot = 0;
  std::vector<PathStep> path;
  bool operator==(const PlanSource&) const = default;
  /// Whether this is one of several parts of what a kernel goes over.
  bool is_part() const {
    for (const PathStep& step : path)
      if (step.kind == PathStep::Kind::widened) return true;
    return false;
  }
  /// Whether these are the real or the imaginary parts of complex elements.
  bool is_half() const { return !path.empty() && path.back().kind == PathStep::Kind::half; }
};

struct ScalarSource {
  std::uint32_t record = 0;
  std::uint16_t index = 0;
  bool operator==(const ScalarSource&) const = default;
};

/// A range of Plan::scalars.
struct ScalarRange {
  std::uint32_t first = 0, count = 0;
};

/// The common part of kernel steps and call steps.
struct StepPart {
  std::uint32_t record = 0;                // of the kernel's domain, or of the call
  std::vector<PlanSource> sources;         // one per access and store of a kernel, or per tensor operand of a call
  std::vector<std::size_t> element_bytes;  // per source; 0 if only the address matters
  ScalarRange scalars;
  std::string name;  // for traces: "softmax_0", "matmul"
  std::source_location where{};
};

}  // namespace fermata

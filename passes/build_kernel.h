// Builds the kernel description of one group: the emit form of its members, their loads and stores, and the loop nest.
#pragma once

#include <utility>
#include <vector>

#include "ir/kernel.h"
#include "passes/program.h"

namespace fermata {

class Dimensions;

/// A tensor argument of the kernel before slots are known.
struct KernelSource {
  enum class Kind : std::uint8_t { load, store, position, layout };  // layout: a number of the value's layout
  Kind kind;
  ValueId value;
  std::uint16_t mask = 0;  // position: axes counted
  std::vector<PathStep> path;
};

struct BuiltKernel {
  Kernel kernel;
  std::vector<std::pair<ValueId, ValueId>> checked;  // positions of the program, and the node that reads there
  std::vector<KernelSource> sources;                 // one per access
  std::vector<ScalarSource> scalars;
  std::vector<AxisRun> axes;  // one per kernel axis
  std::uint32_t domain_record = 0;
  double ns_per_point = 0;
};

/// `dims` are those of the program's graph; `stored` are the members whose values are read outside the group.
BuiltKernel build_kernel(const Program& program, const Dimensions& dims, const Group& group,
                         const std::vector<ValueId>& stored);

}  // namespace fermata

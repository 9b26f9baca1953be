// Groups nodes into kernels.
//
// What it does    Starts from one group per emitting node and merges groups along edges (producers into consumers,
//                 reductions included), then groups that read the same values. Op names are never looked at: only index
//                 maps, reduced axes and cost. What is not merged is noted with its reason.
// Needs           select; copies where reshapes and outputs need them (materialize).
// Leaves behind   Program::groups, group_of, notes. Groups are convex: no path leaves a group and re-enters it.
#pragma once

#include "passes/program.h"

namespace fermata {

bool fuse(Program& program);

/// The axis of `value` that each axis of the group's domain moves along (-1: none), if the value has a home there.
class Dimensions;
bool home_axes(const Program& program, const Dimensions& dims, const Group& group, ValueId value,
               std::vector<std::int8_t>& axes);

}  // namespace fermata

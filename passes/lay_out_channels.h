// Stores values between convolutions channels-last (docs/adr/036-channels-innermost.md).
//
// What it does    Selects results of convolutions, and of kernels that process them elementwise or by windows, that
//                 only such kernels and other convolutions read: no other code sees their layout, so no image is
//                 converted from one layout to another between two layers.
// Needs           fuse.
// Leaves behind   Program::channels_last and Group::channels_last. Sizes keep their order.
#pragma once

#include "passes/program.h"

namespace fermata {

/// Whether there is anything to lay out.
bool has_convolutions(const Graph& graph);
bool lay_out_channels(Program& program);

}  // namespace fermata

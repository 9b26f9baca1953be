// Values between convolutions whose channels lie innermost in memory (docs/adr/036-channels-innermost.md).
//
// What it does    Chooses the results of convolutions, and of kernels that go through them element by element or by
//                 windows, that only such kernels and other convolutions read: nobody else sees how they lie, so no
//                 image is brought from one order into another between two layers.
// Needs           fuse.
// Leaves behind   Program::channels_last and Group::channels_last. Sizes keep their order.
#pragma once

#include "passes/program.h"

namespace fermata {

bool lay_out_channels(Program& program);

}  // namespace fermata

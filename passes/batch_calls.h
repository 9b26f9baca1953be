// Call steps of one op, one after another, that do not depend on each other become a batch, whose calls run as one
// where their sizes agree: many small products then cost what one batched product does.
//
// Needs fuse_epilogues and chain_products, whose steps it leaves alone, and kernels that say that they do several calls
// at once. Whether the sizes agree is found when the plan is bound to some.
#pragma once

#include "passes/program.h"

namespace fermata {

bool batch_calls(Program& program);

}  // namespace fermata

// Joins consecutive, independent call steps of one op into a batch, whose calls run as one if their sizes agree: many
// small products then cost as much as one batched product.
//
// Runs after fuse_epilogues and chain_products, whose steps it leaves alone, and needs kernels that declare that they
// do several calls at once. Whether the sizes agree is checked when the plan is bound.
#pragma once

#include "passes/program.h"

namespace fermata {

bool batch_calls(Program& program);

}  // namespace fermata

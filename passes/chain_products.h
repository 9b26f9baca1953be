// Joins a product, a kernel on its rows and a product of the kernel's result into a chain, such as attention. A chain
// runs by blocks of rows, or as one kernel on a device, so the intermediate results are never in memory as a whole.
//
// Runs after fuse_epilogues. A product with an epilogue and the product right after it become a ProductChainStep if the
// second product's first operand is the epilogue's result, the rows of both depend on the same rows of their first
// operands, and nothing else reads the intermediate results; on a device also only if its executable supports it
// (runtime/executable.h). Whether the sizes agree, and whether it pays, is decided when the plan is bound.
#pragma once

#include <string>

#include "passes/program.h"

namespace fermata {

bool chain_products(Program& program);

/// The explain() text for the second product of a chain, which is step `number`: how it runs with the two steps before
/// it, for the sizes of the recording.
std::string describe_chain(const Program& program, const ProductChainStep& chain, std::size_t number);

}  // namespace fermata

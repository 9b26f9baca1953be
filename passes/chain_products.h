// A product, the kernel on its rows and a product of what that leaves become a chain, which runs block of rows by block
// of rows, or, on a device, as one kernel, so that nothing between the two products is ever whole in memory: attention,
// for one.
//
// Needs fuse_epilogues. A product with an epilogue and the product right after it become a ProductChainStep where the
// second one takes its first operand from the epilogue, where the rows of both depend on the same rows of their first
// operands, and nobody else reads what is between; on a device, where its executable can do all of it
// (runtime/executable.h). Whether the sizes agree, and whether it pays, is found when the plan is bound to some.
#pragma once

#include <string>

#include "passes/program.h"

namespace fermata {

bool chain_products(Program& program);

/// What explain says of the second product of a chain, which is step `number`: how it runs with the two before it, for
/// the sizes of the recording.
std::string describe_chain(const Program& program, const ProductChainStep& chain, std::size_t number);

}  // namespace fermata

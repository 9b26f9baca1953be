// Rounding of vectors of f32 to bf16 by the instruction of AVX-512 BF16, where a processor has it: a third of the
// instructions that integers take.
//
// It takes subnormal numbers for zero (Intel, "Intel Architecture Instruction Set Extensions Programming Reference",
// VCVTNEPS2BF16), so groups of vectors with one are rounded by integers. All others have the same bits.
#pragma once

#include "codegen_cpu/jit/code_builder.h"

namespace fermata::jit {

/// Whether round_to_bf16() is for vectors of this dtype.
bool has_bf16(const CodeBuilder& b, DType from);
/// `are_cut`: values that bf16 has, rounded before (ir/narrow_values.h).
Values round_to_bf16(CodeBuilder& b, const Values& vectors, bool are_cut);

}  // namespace fermata::jit

// matmul_weights: weights of 8 or 4 bits on the right (ir/packed_weights.h) and f32, f16 or bf16 on the left.
#pragma once

#include "codegen_cpu/library/packed_weights_kernels.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// Codes become floats inside the product, which adds up in f32.
void matmul_weights_call(const CallArgs& args);
/// By the kernel of an instruction set: for tests.
void matmul_weights_call(const CallArgs& args, WeightsKernel kernel);

}  // namespace fermata

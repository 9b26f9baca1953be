// The kernels of libfermata_run_cuda: those of ops that kernel descriptions cannot express, which register next to
// their code, and those of control flow. Their machine code is in the files of programs.
#pragma once

#include "ir/op.h"

namespace fermata {

/// Registers CUDA as a backend that compiles nothing, once; later calls do nothing.
void add_cuda_kernels();
bool has_cuda_kernel(Op op, DType operand);

}  // namespace fermata

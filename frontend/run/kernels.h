// The kernels of libfermata_run: those of irregular ops, which register themselves beside their code
// (dispatch/kernel_files.h), and copies. Kernels that fuse are in the files of programs.
#pragma once

#include "ir/op.h"

namespace fermata {

/// Once; later calls do nothing.
void add_kernels();
bool has_kernel(Op op, DType operand);

}  // namespace fermata

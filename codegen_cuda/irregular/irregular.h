// Kernels of the ops that no kernel description can say, on CUDA. Any strides; results do not depend on how threads are
// scheduled.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata::gpu {

/// Null where the op has none.
CallKernel irregular_kernel(Op op);

// Operands and attributes as in ir/graph.h.
void concat_call(const CallArgs& args);
void update_call(const CallArgs& args);
void take_call(const CallArgs& args);
void index_add_call(const CallArgs& args);
void csr_matmul_call(const CallArgs& args);
void csr_sampled_matmul_call(const CallArgs& args);

}  // namespace fermata::gpu

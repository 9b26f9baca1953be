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
void scan_call(const CallArgs& args);
void gather_call(const CallArgs& args);
void scatter_call(const CallArgs& args);
void fold_call(const CallArgs& args);
void sort_call(const CallArgs& args);
void argsort_call(const CallArgs& args);
void top_k_indices_call(const CallArgs& args);
void searchsorted_call(const CallArgs& args);
void flatnonzero_call(const CallArgs& args);
void convolution_call(const CallArgs& args);  // and its gradients

}  // namespace fermata::gpu

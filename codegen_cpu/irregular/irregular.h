// Call kernels of the irregular ops that move elements: concat, take, index_add, update.
//
// They take operands of any strides and any dtype. Results do not depend on the number of threads.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// The kernel of an op, or null if it is not one of these.
CallKernel irregular_kernel(Op op);

/// Attributes [axis]; inputs differ along it only.
void concat_call(const CallArgs& args);
/// Attributes [axis]. Negative positions count from the end; IndexError FM1204 before anything is written.
void take_call(const CallArgs& args);
/// Attributes [axis]. Elements that meet are added in order of their positions; f16 and bf16 are added in f32 and
/// rounded once. Positions as in take.
void index_add_call(const CallArgs& args);
/// Attributes [offset, stride per axis of input 1 ...] over the row-major elements of input 0.
void update_call(const CallArgs& args);

}  // namespace fermata

// Call kernels of the irregular ops: those that move elements or add them up, scan, sort and search.
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
/// Attributes [axis]. The index has the axes of input 0, none longer but the one that is indexed.
void gather_call(const CallArgs& args);
/// scatter, scatter_add and the like: attributes and index as in gather; elements that meet are taken in order.
void scatter_call(const CallArgs& args);
/// Attributes [axis, step, dilation].
void fold_call(const CallArgs& args);
/// Attributes [offset, stride per axis of input 1 ...] over the row-major elements of input 0.
void update_call(const CallArgs& args);

/// Attributes [axis]. Each line is scanned in blocks of a fixed size, so that errors of sums grow with the number of
/// blocks.
void scan_call(const CallArgs& args);
/// Attributes [axis, descending]. Both are radix sorts; argsort is stable, 0 and -0 being equal.
void sort_call(const CallArgs& args);
void argsort_call(const CallArgs& args);
/// Attributes [axis, k, largest].
void top_k_indices_call(const CallArgs& args);
/// Attributes [right].
void searchsorted_call(const CallArgs& args);
void flatnonzero_call(const CallArgs& args);

}  // namespace fermata

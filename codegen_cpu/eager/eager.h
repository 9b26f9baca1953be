// The compiled kernels that play ops one by one on the CPU: every pointwise op, reduction and random op, casts, copy,
// full and iota, for every real dtype and bool.
//
// Results have the bits of the compiled kernels: both run the formulas of ir/scalar_math.h and the reduction trees of
// ir/kernel.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/dtype.h"
#include "ir/op.h"
#include "runtime/tensor_view.h"

namespace fermata::eager {

/// The innermost loop of a pointwise op: n contiguous elements out; each operand contiguous or, where `splat`, a single
/// element. Operands have the dtype of the op's rule. `out` may be one of the operands, else they must not overlap.
using InnerLoop = void (*)(void* out, const void* const* in, const bool* splat, std::int64_t n);

/// The `call` kernel of an op; null for ops that have their kernels elsewhere (matmul, gather, views).
CallKernel eager_kernel(Op op);
/// The inner loop of a pointwise op at an operand dtype (half dtypes included); null where there is none.
InnerLoop eager_inner_loop(Op op, DType operand);

/// "avx512", "avx2" or "baseline": what the kernels in use were compiled for.
std::string_view instruction_set();

}  // namespace fermata::eager

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

/// The one of three tables for that.
template <class Table> const Table& for_instruction_set(const Table& baseline, const Table& avx2, const Table& avx512) {
  return instruction_set() == "avx512" ? avx512 : instruction_set() == "avx2" ? avx2 : baseline;
}

}  // namespace fermata::eager

/// Of the tables nameBaseline, nameAvx2 and nameAvx512, the latter of which only x86 has.
#if defined(__x86_64__)
#define FERMATA_TABLE(name) ::fermata::eager::for_instruction_set(name##Baseline, name##Avx2, name##Avx512)
#else
#define FERMATA_TABLE(name) name##Baseline
#endif

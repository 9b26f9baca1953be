// What the engine has and a program that is compiled never asks for: the formulas of ops, from which kernels are made,
// and products on processors that have no code for kernels. They take most of a megabyte.
#include "codegen_cpu/library/matmul_portable_kernels.h"
#include "ir/error.h"
#include "ir/op.h"

namespace fermata {

const Formula& pointwise_formula(Op, DType) { throw_internal("a program asks for a formula"); }
const Formula& random_formula(Op, DType) { throw_internal("a program asks for a formula"); }
const ReduceFormula& reduce_formula(Op, DType) { throw_internal("a program asks for a formula"); }

constinit const PortableKernels kPortableBaseline{};

}  // namespace fermata

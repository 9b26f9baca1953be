// Complex numbers in kernels: a value is two values of a scalar program, and an access two accesses of the parts.
//
// Ops that are arithmetic on parts have this form. Functions, quotients and reductions have none: they run as calls
// (codegen_cpu/complex), whose special cases and trees of additions are their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ir/dtype.h"
#include "ir/graph.h"
#include "ir/scalar_program.h"

namespace fermata {

/// A value of either kind: a real one has no imaginary part.
struct ComplexValue {
  ValueId re = kNoValue, im = kNoValue;
};

/// Whether a node has to do with complex numbers.
bool is_of_complex(const Graph& graph, const GraphNode& node);
/// Whether an op with complex operands or a complex result has this form.
bool has_complex_form(Op op, DType operand, DType result);
/// The operand dtypes with this form.
DTypeSet complex_form_dtypes(Op op);
/// How many primitives it is made of.
std::size_t complex_form_size(Op op, DType operand, DType result);
/// Appends it to a program. Real operands are in their compute dtype; of a cast in the one that they are computed in.
/// nullopt if there is none.
std::optional<ComplexValue> append_complex(ScalarProgram& program, Op op, DType operand, DType result,
                                           std::span<const ComplexValue> operands);

}  // namespace fermata

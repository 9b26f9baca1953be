// Evaluation of scalar programs on one element, on 8-byte slots: the semantics of prims.def.
//
// A slot holds the bits of an element in its low bytes and zeros above. Kernel interpretation, the reference evaluation
// of graphs, and the checks of which primitives exist for which dtypes are based on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/scalar_program.h"

namespace fermata {

using PrimFunction = std::uint64_t (*)(std::uint64_t a, std::uint64_t b, std::uint64_t c);

/// Returns the function of a primitive with this result dtype on operands of dtype `operand` (for select: the dtype of
/// the selected values). Null if the primitive is not defined for them, and for leaves (input, scalar, ...).
PrimFunction prim_function(Prim prim, DType type, DType operand);

/// Converts a slot between real dtypes or bool, as Prim::convert does.
std::uint64_t convert_slot(DType from, DType to, std::uint64_t bits);

std::uint64_t load_slot(DType dtype, const void* element);
void store_slot(DType dtype, void* element, std::uint64_t bits);

/// A program prepared for execution: one step per instruction. What reads memory has no function, nor have other
/// leaves: the caller fills them in.
struct ScalarStep {
  PrimFunction function = nullptr;
  ValueId a = 0, b = 0, c = 0;
};
std::vector<ScalarStep> scalar_steps(const ScalarProgram& program);

/// Runs a formula: parameters in, results out.
class FormulaInterpreter {
 public:
  explicit FormulaInterpreter(const Formula& formula);
  /// The results; valid until the next call.
  std::span<const std::uint64_t> operator()(std::span<const std::uint64_t> parameters);

 private:
  std::vector<ScalarStep> steps_;
  std::vector<ValueId> computed_;                              // values that have a function, in order
  std::vector<std::pair<ValueId, std::uint16_t>> parameters_;  // value, parameter index
  std::vector<ValueId> results_;
  std::vector<std::uint64_t> slots_, out_;
};

}  // namespace fermata

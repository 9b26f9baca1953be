// Vector-Jacobian products: for each op, how the gradient of its result becomes those of its operands, and what has to
// be kept for that.
//
// Pointwise ops and reductions come from the vjp columns of ir/ops.def, the others from their files in frontend/ops
// (op_rules.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "frontend/transforms/autograd/autograd_tape.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/op_fields.h"

namespace fermata {

struct VjpArgs {
  const GradNode& node;
  vjp::VjpTensor g;                   // gradient of the result; reduced axes are there with size 1
  std::array<vjp::VjpTensor, 3> x{};  // operands that the rule reads
  vjp::VjpTensor y{};                 // the result, where the rule reads it
  std::uint16_t axes = 0;             // reductions

  const Shape& shape(unsigned operand) const { return *node.operands()[operand].shape; }
  /// attributes_of<ops::Sort>(): by name. The type of the result is not among them.
  template <class O> O attributes_of() const {
    static_assert(detail::count_fields<O, detail::IsShape>() == 0 && detail::count_fields<O, detail::IsDType>() == 0);
    return decode<O>({.attributes = attributes(), .shape = {}, .scalars = {}});
  }
  std::span<const std::int64_t> attributes() const { return node.attributes(); }
};

/// The gradient of one operand. It may still be stretched along axes of the operand and have another dtype.
using Vjp = vjp::VjpTensor (*)(const VjpArgs&, unsigned operand);

enum class Derivative : std::uint8_t {
  none,  // asking for it is an error
  zero,  // zero everywhere: contributes nothing
  formula,
};

/// By operand; an op with more of them than three treats them alike.
struct VjpRule {
  static constexpr std::uint8_t kResult = 1u << 7;
  struct Entry {
    Derivative kind = Derivative::none;
    Vjp vjp = nullptr;
    std::uint8_t reads = 0;  // bit k: operand k; kResult
    /// Of complex numbers too. Other formulas that read values are those of a function that is holomorphic, and of its
    /// derivative f'(x): the gradient, in PyTorch's convention, is g conj(f'(x)).
    bool is_conjugate = false;
  };
  std::array<Entry, 3> entries{};
  const Entry& entry(std::size_t operand) const { return entries[operand < 3 ? operand : 0]; }
};

const VjpRule& vjp_rule(Op op);
/// What stands in for it where an operand or the result is complex; null where that is no different.
const VjpRule* complex_vjp_rule(Op op);

namespace vjp {

/// g for the elements that `mask` names, divided by how many there are along the reduced axes.
VjpTensor split_gradient_among_ties(const VjpTensor& g, const VjpTensor& mask, std::uint16_t axes);
/// The product of all elements along the reduced axes but this one; y is the product of all.
VjpTensor prod_of_others(const VjpTensor& x, const VjpTensor& y, std::uint16_t axes);
/// The derivative of digamma.
VjpTensor trigamma(const VjpTensor& x);
/// phi(x) / Phi(x), the derivative of log_ndtr, which grows like -x far below zero, where both vanish.
VjpTensor normal_hazard(const VjpTensor& x, const VjpTensor& log_ndtr);
/// d pow(a, b) / da and d pow(a, b) / db; y is the result.
VjpTensor pow_by_base(const VjpTensor& a, const VjpTensor& b);
VjpTensor pow_by_exponent(const VjpTensor& a, const VjpTensor& y);

}  // namespace vjp
}  // namespace fermata

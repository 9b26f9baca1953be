// What the transforms know of an irregular op: the gradients of its operands, and how a batch of calls is one call.
//
// Both stand beside the op's public function, in namespace fermata::vjp:
//
//   FERMATA_OP_RULES(take, batched_take, gradient(take_vjp, kSecond), kZeroGradient);
//
// This is FERMATA_LIBRARY_IMPL(ns, Autograd, m) and (ns, Batched, m) of custom operators, as constants: the tables of
// autograd and vmap have a pointer for each op, and recording a call costs one load. Rules are declared from the rows
// of ir/ops.def, so an op without rules does not link, and one with too few gradients does not compile.
#pragma once

#include <concepts>

#include "dispatch/op_call.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "frontend/transforms/vmap/batched_rules.h"
#include "ir/ops/structures.h"

namespace fermata {

struct OpRules {
  VjpRule gradients;
  BatchingRule batching;
};

namespace vjp {

#define FERMATA_IRREGULAR(name, ...) extern const OpRules name##_rules;
#include "ir/ops.def"

// What a gradient reads: operands, the result, or several of them.
inline constexpr std::uint8_t kFirst = 1, kSecond = 2, kThird = 4, kResult = VjpRule::kResult;

/// A call with the attributes by name: call<Op::sort>({.axis = {0}, .descending = {true}}, tensors). `dtype` as in
/// EncodedAttributes.
template <Op op>
VjpTensor call(const OpStruct<op>& attributes, std::span<const Tensor> tensors, DType dtype = DType::f32) {
  const EncodedAttributes encoded(attributes, dtype);
  const Attributes& all = encoded;
  return call(op, tensors, all.integers, all.wanted);
}
/// One of several ops that share a struct.
template <AttributeStruct O> VjpTensor call(Op op, const O& attributes, std::span<const Tensor> tensors) {
  return call(op, tensors, encode(attributes));
}

/// The operand has no derivative, or is not floating: asking for it is an error.
inline constexpr VjpRule::Entry kNoGradient{};
/// Zero everywhere: contributes nothing.
inline constexpr VjpRule::Entry kZeroGradient{Derivative::zero};
/// Of complex operands where nothing is read, or where the function is holomorphic and f'(x) is conjugated after.
constexpr VjpRule::Entry gradient(Vjp vjp, std::uint8_t reads = 0) { return {Derivative::formula, vjp, reads}; }
/// One that conjugates its result.
constexpr VjpRule::Entry conjugate_gradient(Vjp vjp, std::uint8_t reads = 0) {
  return {Derivative::formula, vjp, reads, true};
}
/// The gradient of the result as it is.
inline constexpr VjpRule::Entry kSameGradient =
    gradient(+[](const VjpArgs& args, unsigned) -> VjpTensor { return args.g; });

/// As a batching rule: one call for every element of the batch.
inline constexpr BatchingRule kLoop = nullptr;

template <Op op, std::same_as<VjpRule::Entry>... Gradients>
consteval OpRules op_rules(BatchingRule batching, Gradients... gradients) {
  constexpr const Operands& kOperands = OpStruct<op>::operands;
  static_assert(sizeof...(gradients) == (kOperands.is_list ? 1 : kOperands.count),
                "one gradient per operand of the op's struct; a single one for a variable number of operands");
  OpRules rules{{{gradients...}}, batching};
  if (kOperands.is_list) rules.gradients.entries.fill(rules.gradients.entries[0]);
  return rules;
}

}  // namespace vjp
}  // namespace fermata

/// The batching rule of an op, or kLoop, and the gradient of each operand.
#define FERMATA_OP_RULES(op, ...) constinit const OpRules op##_rules = op_rules<Op::op>(__VA_ARGS__)

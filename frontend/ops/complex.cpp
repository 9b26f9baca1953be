// See fermata/complex.h.
#include "fermata/complex.h"

#include <algorithm>
#include <array>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"

namespace fermata {

Tensor complex(const Operand& re, const Operand& im) {
  require_defined(Op::complex, re), require_defined(Op::complex, im);
  const Location where = re.where();
  const std::array given{&re, &im};
  // As beside each other in a sum: numbers and 0-d tensors do not widen.
  const DType common = re.is_tensor() || im.is_tensor() ? add(re, im).dtype() : DType::f32;
  const DType part = common == DType::f64 ? DType::f64 : DType::f32;
  std::array<Tensor, 2> parts;
  for (std::size_t k = 0; k < 2; ++k) {
    const bool narrows = given[k]->is_tensor() && !is_complex(given[k]->tensor().dtype());
    parts[k] = !given[k]->is_tensor() ? full({}, given[k]->scalar(), part, where)
               : narrows              ? astype(given[k]->tensor(), part, where)
                                      : given[k]->tensor();
  }
  if (const auto shape = broadcast_shapes(parts[0].shape(), parts[1].shape()))
    for (Tensor& part_of_all : parts) part_of_all = broadcast_to(part_of_all, *shape, where);
  return general_call(Op::complex, parts, {}, where);
}

bool is_complex(const Tensor& x, Location where) { return is_complex(x.dtype(where)); }

// Gradients and batching rules, and the gradients of ops that are not holomorphic where an operand or the result is
// complex.
//
// Gradients follow PyTorch's convention: that of a real loss L by z = a + bi is dL/da + i dL/db, the conjugate
// Wirtinger derivative times 2, which is the direction in which L grows fastest. For a step dz the loss changes by
// Re(conj(g) dz).
namespace vjp {
namespace {

VjpTensor complex(const VjpTensor& re, const VjpTensor& im) {
  const std::array parts{re.tensor(), im.tensor()};
  return call<Op::complex>({}, parts);
}

// The results of the next four are real, and so is g.
VjpTensor abs_vjp(const VjpArgs& args, unsigned) { return args.g * sign(args.x[0]); }
VjpTensor real_vjp(const VjpArgs& args, unsigned) { return args.g; }
VjpTensor imag_vjp(const VjpArgs& args, unsigned) { return complex(args.g * 0, args.g); }
/// d angle = Im(dz / z), so the gradient is g i / conj(z) = g i z / |z|^2.
VjpTensor angle_vjp(const VjpArgs& args, unsigned) {
  const VjpTensor re = real(args.x[0]), im = imag(args.x[0]), scale = args.g / (re * re + im * im);
  return complex(-im * scale, re * scale);
}

VjpTensor conj_vjp(const VjpArgs& args, unsigned) { return conj(args.g); }

/// y = z / |z| moves along the circle only: what of g points outwards is dropped.
VjpTensor sign_vjp(const VjpArgs& args, unsigned) {
  const VjpTensor none = args.x[0] == 0;
  const VjpTensor outwards = real(conj(args.y) * args.g);
  return where(none, 0, (args.g - args.y * outwards) / where(none, 1, abs(args.x[0])));
}

VjpTensor parts_vjp(const VjpArgs& args, unsigned operand) { return operand == 0 ? real(args.g) : imag(args.g); }

/// An op of ir/ops.def whose vjp column is that of real operands.
struct ComplexRule {
  Op op;
  VjpRule rule;
};
constexpr ComplexRule kComplexRules[] = {
    {Op::abs, {{conjugate_gradient(abs_vjp, kFirst)}}}, {Op::real, {{conjugate_gradient(real_vjp)}}},
    {Op::imag, {{conjugate_gradient(imag_vjp)}}},       {Op::angle, {{conjugate_gradient(angle_vjp, kFirst)}}},
    {Op::conj, {{conjugate_gradient(conj_vjp)}}},       {Op::sign, {{conjugate_gradient(sign_vjp, kFirst | kResult)}}},
};

}  // namespace

FERMATA_OP_RULES(complex, batched_in_front, conjugate_gradient(parts_vjp), conjugate_gradient(parts_vjp));

}  // namespace vjp

const VjpRule* complex_vjp_rule(Op op) {
  const auto found = std::ranges::find(vjp::kComplexRules, op, &vjp::ComplexRule::op);
  return found != std::end(vjp::kComplexRules) ? &found->rule : nullptr;
}

}  // namespace fermata

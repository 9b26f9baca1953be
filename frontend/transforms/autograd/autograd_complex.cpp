// Derivatives of ops that are not holomorphic, where an operand or the result is complex.
//
// Gradients follow PyTorch's convention: that of a real loss L by z = a + bi is dL/da + i dL/db, the conjugate
// Wirtinger derivative times 2, which is the direction in which L grows fastest. For a step dz the loss changes by
// Re(conj(g) dz).
#include "frontend/transforms/autograd/autograd_rules.h"

namespace fermata {
namespace vjp {
namespace {

Located complex(const Located& re, const Located& im) {
  const std::array parts{re.tensor(), im.tensor()};
  return call(Op::complex, parts, {});
}

// The results of the next four are real, and so is g.
Located abs_vjp(const VjpArgs& args, unsigned) { return args.g * sign(args.x[0]); }
Located real_vjp(const VjpArgs& args, unsigned) { return args.g; }
Located imag_vjp(const VjpArgs& args, unsigned) { return complex(args.g * 0, args.g); }
/// d angle = Im(dz / z), so the gradient is g i / conj(z) = g i z / |z|^2.
Located angle_vjp(const VjpArgs& args, unsigned) {
  const Located re = real(args.x[0]), im = imag(args.x[0]), scale = args.g / (re * re + im * im);
  return complex(-im * scale, re * scale);
}

Located conj_vjp(const VjpArgs& args, unsigned) { return conj(args.g); }

/// y = z / |z| moves along the circle only: what of g points outwards is dropped.
Located sign_vjp(const VjpArgs& args, unsigned) {
  const Located none = args.x[0] == 0;
  const Located outwards = real(conj(args.y) * args.g);
  return where(none, 0, (args.g - args.y * outwards) / where(none, 1, abs(args.x[0])));
}

Located parts_vjp(const VjpArgs& args, unsigned operand) { return operand == 0 ? real(args.g) : imag(args.g); }

}  // namespace
}  // namespace vjp

const VjpRule* complex_vjp_rule(Op op) {
  using namespace vjp;
  const auto rule = [](Vjp vjp, std::uint8_t reads = 0) {
    const VjpRule::Entry entry{Derivative::formula, vjp, reads, true};
    return VjpRule{{entry, entry, entry}};
  };
  static const VjpRule abs = rule(abs_vjp, 1), real = rule(real_vjp), imag = rule(imag_vjp), angle = rule(angle_vjp, 1),
                       conj = rule(conj_vjp), sign = rule(sign_vjp, 1 | VjpRule::kResult), parts = rule(parts_vjp);
  switch (op) {
    case Op::abs: return &abs;
    case Op::real: return &real;
    case Op::imag: return &imag;
    case Op::angle: return &angle;
    case Op::conj: return &conj;
    case Op::sign: return &sign;
    case Op::complex: return &parts;
    default: return nullptr;
  }
}

}  // namespace fermata

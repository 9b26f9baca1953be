// The rules of ir/ops/neural.def: gathers, scatters, windows and convolutions. Those of a convolution and its two
// gradients are made of each other, so derivatives of every order follow.
#include "frontend/transforms/autograd/autograd_rules.h"

namespace fermata {
namespace vjp {
namespace {

Located zeros_of(const Located& like, const Shape& shape) { return full(0, {like.dtype(), shape}, like); }

Located gather(const Located& x, const Located& index, const VjpArgs& args) {
  return call(Op::gather, std::array{x.tensor(), index.tensor()}, args.attributes());
}
Located scatter(Op op, const Located& x, const Located& index, const Located& source, const VjpArgs& args) {
  return call(op, std::array{x.tensor(), index.tensor(), source.tensor()}, args.attributes());
}

Located gather_vjp(const VjpArgs& args, unsigned) {
  return scatter(Op::scatter_add, zeros_of(args.g, args.shape(0)), args.x[1], args.g, args);
}

Located as_it_is(const VjpArgs& args, unsigned) { return args.g; }
Located scatter_add_source_vjp(const VjpArgs& args, unsigned) { return gather(args.g, args.x[1], args); }

Located scatter_vjp(const VjpArgs& args, unsigned) {
  return scatter(Op::scatter, args.g, args.x[1], zeros_of(args.g, args.shape(1)), args);
}
/// Of several elements that went to one place, only the one that stayed.
Located scatter_source_vjp(const VjpArgs& args, unsigned) {
  const Shape& shape = args.shape(1);
  const Located number = reshape(iota({element_count(shape)}, 0, args.g), shape);
  const Located none = full(-1, {DType::i64, args.shape(0)}, args.g);
  const Located last = gather(scatter(Op::scatter, none, args.x[1], number, args), args.x[1], args);
  return where(last == number, gather(args.g, args.x[1], args), 0);
}

/// Products without the zeros, and how many zeros there are: what is left of a product when one factor is taken out.
struct Factors {
  explicit Factors(const VjpArgs& args) {
    const Located &x = args.x[0], &index = args.x[1], &source = args.x[2];
    products = scatter(Op::scatter_multiply, where(x == 0, 1, x), index, where(source == 0, 1, source), args);
    zeros = scatter(Op::scatter_add, cast(x == 0, DType::i64), index, cast(source == 0, DType::i64), args);
  }
  static Located others(const Located& factor, const Located& product, const Located& zero_count) {
    const Located own = factor == 0;
    return where(zero_count == cast(own, DType::i64), product / where(own, 1, factor), 0);
  }
  Located products, zeros;
};
Located scatter_multiply_vjp(const VjpArgs& args, unsigned) {
  const Factors f(args);
  return args.g * Factors::others(args.x[0], f.products, f.zeros);
}
Located scatter_multiply_source_vjp(const VjpArgs& args, unsigned) {
  const Factors f(args);
  const Located &index = args.x[1], &source = args.x[2];
  return gather(args.g, index, args) *
         Factors::others(source, gather(f.products, index, args), gather(f.zeros, index, args));
}

/// The gradient of an extreme value, in equal parts for all that have it.
struct Shares {
  explicit Shares(const VjpArgs& args) : of_source(args.x[2] == gather(args.y, args.x[1], args)) {
    of_x = args.x[0] == args.y;
    const Located count =
        scatter(Op::scatter_add, cast(of_x, args.g.dtype()), args.x[1], cast(of_source, args.g.dtype()), args);
    each = args.g / where(count == 0, 1, count);
  }
  Located of_source, of_x, each;
};
Located scatter_extreme_vjp(const VjpArgs& args, unsigned) {
  const Shares s(args);
  return where(s.of_x, s.each, 0);
}
Located scatter_extreme_source_vjp(const VjpArgs& args, unsigned) {
  const Shares s(args);
  return where(s.of_source, gather(s.each, args.x[1], args), 0);
}

Located unfold_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t attributes[] = {args.attributes()[0], args.attributes()[2], args.attributes()[3]};
  return call(Op::fold, {&args.g.tensor(), 1}, attributes, {args.g.dtype(), args.shape(0)});
}
Located fold_vjp(const VjpArgs& args, unsigned) {
  const std::int64_t attributes[] = {args.attributes()[0], args.shape(0).back(), args.attributes()[1],
                                     args.attributes()[2]};
  return call(Op::unfold, {&args.g.tensor(), 1}, attributes);
}

Located convolution(const Located& x, const Located& weight, const VjpArgs& args) {
  return call(Op::convolution, std::array{x.tensor(), weight.tensor()}, args.attributes());
}
/// One of its gradients; the result has the type of an operand of `args`, or is as long as one.
Located gradient(Op op, const Located& a, const Located& b, const Shape& shape, const VjpArgs& args) {
  return call(op, std::array{a.tensor(), b.tensor()}, args.attributes(), {a.dtype(), shape});
}
constexpr Op kData = Op::convolution_data_gradient, kWeight = Op::convolution_weight_gradient;

Located convolution_vjp(const VjpArgs& args, unsigned) {
  return gradient(kData, args.g, args.x[1], args.shape(0), args);
}
Located convolution_weight_vjp(const VjpArgs& args, unsigned) {
  return gradient(kWeight, args.x[0], args.g, args.shape(1), args);
}
Located data_gradient_vjp(const VjpArgs& args, unsigned) { return convolution(args.g, args.x[1], args); }
Located data_gradient_weight_vjp(const VjpArgs& args, unsigned) {
  return gradient(kWeight, args.g, args.x[0], args.shape(1), args);
}
Located weight_gradient_vjp(const VjpArgs& args, unsigned) {
  return gradient(kData, args.x[1], args.g, args.shape(0), args);
}
Located weight_gradient_gradient_vjp(const VjpArgs& args, unsigned) { return convolution(args.x[0], args.g, args); }

}  // namespace
}  // namespace vjp

VjpRule neural_vjp_rule(Op op) {
  using namespace vjp;
  const auto formula = [](Vjp vjp, std::uint8_t reads = 0) { return VjpRule::Entry{Derivative::formula, vjp, reads}; };
  constexpr VjpRule::Entry zero{Derivative::zero};
  constexpr std::uint8_t kFirst = 1, kSecond = 2, kAll = 7, kResult = VjpRule::kResult;
  switch (op) {
    case Op::gather: return {{formula(gather_vjp, kSecond), zero}};
    case Op::scatter: return {{formula(scatter_vjp, kSecond), zero, formula(scatter_source_vjp, kSecond)}};
    case Op::scatter_add: return {{formula(as_it_is), zero, formula(scatter_add_source_vjp, kSecond)}};
    case Op::scatter_multiply:
      return {{formula(scatter_multiply_vjp, kAll), zero, formula(scatter_multiply_source_vjp, kAll)}};
    case Op::scatter_maximum:
    case Op::scatter_minimum:
      return {
          {formula(scatter_extreme_vjp, kAll | kResult), zero, formula(scatter_extreme_source_vjp, kAll | kResult)}};
    case Op::unfold: return {{formula(unfold_vjp)}};
    case Op::fold: return {{formula(fold_vjp)}};
    case Op::convolution: return {{formula(convolution_vjp, kSecond), formula(convolution_weight_vjp, kFirst)}};
    case Op::convolution_data_gradient:
      return {{formula(data_gradient_vjp, kSecond), formula(data_gradient_weight_vjp, kFirst)}};
    case Op::convolution_weight_gradient:
      return {{formula(weight_gradient_vjp, kSecond), formula(weight_gradient_gradient_vjp, kFirst)}};
    default: return {};  // no operands, or not differentiable
  }
}

}  // namespace fermata

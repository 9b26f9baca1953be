// The rules of ir/ops/irregular.def. Each gives the gradient in exactly the operand's shape.
#include <numeric>

#include "frontend/transforms/autograd/autograd_rules.h"

namespace fermata {
namespace vjp {
namespace {

std::uint16_t mask_of(const VjpArgs& args) { return static_cast<std::uint16_t>(args.attributes()[0]); }

Located as_it_is(const VjpArgs& args, unsigned) { return args.g; }
Located reshape_vjp(const VjpArgs& args, unsigned) { return reshape(args.g, args.shape(0)); }
Located expand_dims_vjp(const VjpArgs& args, unsigned) { return squeeze(args.g, mask_of(args)); }
Located squeeze_vjp(const VjpArgs& args, unsigned) { return expand_dims(args.g, mask_of(args)); }
Located broadcast_to_vjp(const VjpArgs& args, unsigned) { return sum_to(args.g, args.shape(0)); }

Located permute_vjp(const VjpArgs& args, unsigned) {
  std::vector<std::int64_t> back(args.attributes().size());
  for (std::size_t i = 0; i < back.size(); ++i)
    back[static_cast<std::size_t>(args.attributes()[i])] = static_cast<std::int64_t>(i);
  return permute(args.g, back);
}

Located slice_vjp(const VjpArgs& args, unsigned) {
  const Shape& from = args.shape(0);
  const Shape dense = dense_strides(from);
  Shape strides;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < from.rank(); ++i) {
    offset += args.attributes()[i] * dense[i];
    strides.push_back(args.attributes()[from.rank() + i] * dense[i]);
  }
  return update(full(0, {args.g.dtype(), from}, args.g), args.g, offset, strides);
}

Located concat_vjp(const VjpArgs& args, unsigned operand) {
  const auto axis = static_cast<std::size_t>(args.attributes()[0]);
  Shape starts, steps;
  for (unsigned i = 0; i < args.shape(operand).rank(); ++i) starts.push_back(0), steps.push_back(1);
  for (unsigned k = 0; k < operand; ++k) starts[axis] += args.shape(k)[axis];
  return slice(args.g, starts, steps, args.shape(operand));
}

Located take_vjp(const VjpArgs& args, unsigned) {
  return index_add(full(0, {args.g.dtype(), args.shape(0)}, args.g), args.x[1], args.g, args.attributes()[0]);
}

Located index_add_source_vjp(const VjpArgs& args, unsigned) { return take(args.g, args.x[1], args.attributes()[0]); }

Shape update_strides(const VjpArgs& args) { return Shape(args.attributes().subspan(1)); }
Located update_vjp(const VjpArgs& args, unsigned) {
  const Located nothing = full(0, {args.g.dtype(), args.shape(1)}, args.g);
  return update(args.g, nothing, args.attributes()[0], update_strides(args));
}
Located update_values_vjp(const VjpArgs& args, unsigned) {
  return read_strided(args.g, args.attributes()[0], update_strides(args), args.shape(1));
}

/// The gradient of a product as one of matrices: vectors get the axis that matmul gives them.
Located product_gradient(const VjpArgs& args) {
  const unsigned rank = args.g.shape().rank();
  Located g = args.g;
  if (args.shape(1).rank() == 1) g = expand_dims(g, static_cast<std::uint16_t>(1u << rank));
  if (args.shape(0).rank() == 1) {
    const unsigned row = g.shape().rank() - 1;
    g = expand_dims(g, static_cast<std::uint16_t>(1u << row));
  }
  return g;
}

Shape matrix_shape(const Shape& sizes, bool is_lhs) {
  if (sizes.rank() > 1) return sizes;
  return is_lhs ? Shape{1, sizes[0]} : Shape{sizes[0], 1};
}

/// All axes but the last in one.
Located flatten_rows(const Located& x) {
  const Shape sizes = x.shape();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < sizes.rank(); ++i) rows *= sizes[i];
  return reshape(x, {rows, sizes.back()});
}

Located matmul_lhs_vjp(const VjpArgs& args, unsigned) {
  const Shape lhs = matrix_shape(args.shape(0), true);
  const Located rhs = reshape(args.x[1], matrix_shape(args.shape(1), false));
  return reshape(sum_to(matmul(product_gradient(args), transpose(rhs)), lhs), args.shape(0));
}

Located matmul_rhs_vjp(const VjpArgs& args, unsigned) {
  Shape rhs = matrix_shape(args.shape(1), false);
  Located lhs = reshape(args.x[0], matrix_shape(args.shape(0), true));
  Located g = product_gradient(args);
  // One matrix for a whole batch: the sum over the batch is part of one larger product.
  if (rhs.rank() == 2 && lhs.shape().rank() > 2) lhs = flatten_rows(lhs), g = flatten_rows(g);
  if (!args.node.operands()[1].is_turned) return reshape(sum_to(matmul(transpose(lhs), g), rhs), args.shape(1));
  // The gradient lies as the operand does: where that is a transposed weight, it is dense in the order of the weight.
  std::swap(rhs[rhs.rank() - 1], rhs[rhs.rank() - 2]);
  return transpose(sum_to(matmul(transpose(g), lhs), rhs));
}

/// Of a sparse product with respect to its values: one product of two rows for every entry.
Located csr_values_vjp(const VjpArgs& args, unsigned) {
  const bool transposed = args.attributes()[1] != 0;
  const Tensor tensors[] = {args.x[0].tensor(), transposed ? args.x[2].tensor() : args.g.tensor(),
                            transposed ? args.g.tensor() : args.x[2].tensor()};
  return call(Op::csr_sampled_matmul, tensors, {});
}
Located csr_product(const Located& pattern, const Located& values, const Located& dense, std::int64_t columns,
                    bool transposed) {
  const Tensor tensors[] = {pattern.tensor(), values.tensor(), dense.tensor()};
  const std::int64_t attributes[] = {columns, transposed ? 1 : 0};
  return call(Op::csr_matmul, tensors, attributes);
}
Located csr_dense_vjp(const VjpArgs& args, unsigned) {
  return csr_product(args.x[0], args.x[1], args.g, args.attributes()[0], args.attributes()[1] == 0);
}
Located csr_sampled_lhs_vjp(const VjpArgs& args, unsigned) {
  return csr_product(args.x[0], args.g, args.x[2], args.shape(2)[0], false);
}
Located csr_sampled_rhs_vjp(const VjpArgs& args, unsigned) {
  return csr_product(args.x[0], args.g, args.x[1], args.shape(2)[0], true);
}

}  // namespace
}  // namespace vjp

VjpRule irregular_vjp_rule(Op op) {
  using namespace vjp;
  const auto formula = [](Vjp vjp, std::uint8_t reads = 0) { return VjpRule::Entry{Derivative::formula, vjp, reads}; };
  constexpr VjpRule::Entry zero{Derivative::zero};
  constexpr std::uint8_t kFirst = 1, kSecond = 2, kThird = 4;
  switch (op) {
    case Op::cast:
    case Op::copy: return {{formula(as_it_is)}};
    case Op::after: return {{formula(as_it_is), zero}};
    case Op::reshape: return {{formula(reshape_vjp)}};
    case Op::expand_dims: return {{formula(expand_dims_vjp)}};
    case Op::squeeze: return {{formula(squeeze_vjp)}};
    case Op::permute: return {{formula(permute_vjp)}};
    case Op::slice: return {{formula(slice_vjp)}};
    case Op::broadcast_to: return {{formula(broadcast_to_vjp)}};
    case Op::concat: return {{formula(concat_vjp), formula(concat_vjp), formula(concat_vjp)}};
    case Op::take: return {{formula(take_vjp, kSecond), {Derivative::zero}}};
    case Op::index_add: return {{formula(as_it_is), {Derivative::zero}, formula(index_add_source_vjp, kSecond)}};
    case Op::update: return {{formula(update_vjp), formula(update_values_vjp)}};
    case Op::matmul: return {{formula(matmul_lhs_vjp, kSecond), formula(matmul_rhs_vjp, kFirst)}};
    case Op::csr_matmul:
      return {{zero, formula(csr_values_vjp, kFirst | kThird), formula(csr_dense_vjp, kFirst | kSecond)}};
    case Op::csr_sampled_matmul:
      return {{zero, formula(csr_sampled_lhs_vjp, kFirst | kThird), formula(csr_sampled_rhs_vjp, kFirst | kSecond)}};
    default: {
      for (const VjpRule& rule : {neural_vjp_rule(op), ordering_vjp_rule(op)})
        if (rule.entries[0].kind != Derivative::none) return rule;
      return linalg_vjp_rule(op);
    }
  }
}

}  // namespace fermata

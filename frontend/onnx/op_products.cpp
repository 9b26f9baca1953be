// Matrix products.
#include <array>

#include "fermata/linalg.h"
#include "fermata/ops.h"
#include "fermata/products.h"
#include "fermata/views.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

void matmul_op(NodeCall& c) { c.give(matmul(c.in(0), c.in(1), c.where)); }

void gemm_op(NodeCall& c) {
  Tensor a = c.in(0), b = c.in(1);
  if (c.attr("transA", std::int64_t{0}) != 0) a = transpose(a, -2, -1, c.where);
  if (c.attr("transB", std::int64_t{0}) != 0) b = transpose(b, -2, -1, c.where);
  const double alpha = c.attr("alpha", 1.0), beta = c.attr("beta", 1.0);
  const DType dtype = a.dtype();
  Tensor product = matmul(a, b, c.where);
  if (alpha != 1) product = product * alpha;
  if (c.has(2) && beta != 0) {
    const Tensor bias = c.in(2);
    product = add(Operand(product, c.where), beta == 1 ? Operand(bias, c.where) : Operand(bias * beta, c.where));
  }
  c.give(astype(product, dtype, c.where));
}
void einsum_op(NodeCall& c) {
  std::vector<Tensor> operands;
  for (std::size_t k = 0; k < c.input_count(); ++k) operands.push_back(c.in(k));
  c.give(einsum(c.attr("equation", ""), operands, c.where));
}
void det_op(NodeCall& c) { c.give(linalg::det(c.in(0), c.where)); }

constexpr std::array kRows{
    OperatorRow{"Det", &det_op},
    OperatorRow{"Einsum", &einsum_op},
    OperatorRow{"Gemm", &gemm_op},
    OperatorRow{"MatMul", &matmul_op},
};

}  // namespace

Rows product_rows() { return kRows; }

}  // namespace fermata::onnx

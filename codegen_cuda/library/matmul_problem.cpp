// See matmul_problem.h.
#include "codegen_cuda/library/matmul_problem.h"

#include <algorithm>

namespace fermata::gpu {
namespace {

/// Takes batch axes along which both sides move like one longer axis as that axis.
void merge_batches(MatmulProblem& p) {
  for (std::size_t i = p.batch_sizes.rank(); i-- > 1;) {
    const std::int64_t inner = p.batch_sizes[i];
    const auto continues = [&](const Shape& s) { return s[i - 1] == s[i] * inner; };
    if (!continues(p.lhs.batch_strides) || !continues(p.rhs.batch_strides)) continue;
    p.batch_sizes[i - 1] *= inner;
    for (Shape* const s : {&p.lhs.batch_strides, &p.rhs.batch_strides}) (*s)[i - 1] = (*s)[i];
    for (Shape* const s : {&p.batch_sizes, &p.lhs.batch_strides, &p.rhs.batch_strides}) {
      Shape shorter;
      for (std::size_t j = 0; j < s->rank(); ++j)
        if (j != i) shorter.push_back((*s)[j]);
      *s = shorter;
    }
  }
}

}  // namespace

MatmulProblem decode_matmul(const CallArgs& args) {
  const TensorView &lhs = args.inputs[0], &rhs = args.inputs[1];
  MatmulProblem p{.lhs = {lhs.data, lhs.dtype, 0, lhs.strides[lhs.rank - 1], {}},
                  .rhs = {rhs.data, rhs.dtype, rhs.strides[0], 0, {}},
                  .out = args.outputs[0].data,
                  .out_dtype = args.outputs[0].dtype,
                  .batch_sizes = {}};
  p.k = lhs.sizes[lhs.rank - 1];
  if (lhs.rank > 1) p.m = lhs.sizes[lhs.rank - 2], p.lhs.row_stride = lhs.strides[lhs.rank - 2];
  if (rhs.rank > 1) {
    p.n = rhs.sizes[rhs.rank - 1];
    p.rhs.row_stride = rhs.strides[rhs.rank - 2], p.rhs.column_stride = rhs.strides[rhs.rank - 1];
  }
  const unsigned lhs_rank = lhs.rank - std::min<unsigned>(lhs.rank, 2),
                 rhs_rank = rhs.rank - std::min<unsigned>(rhs.rank, 2);
  const unsigned rank = std::max(lhs_rank, rhs_rank);
  for (unsigned i = 0; i < rank; ++i) {
    const int l = static_cast<int>(i + lhs_rank) - static_cast<int>(rank),
              r = static_cast<int>(i + rhs_rank) - static_cast<int>(rank);
    const std::int64_t lhs_size = l < 0 ? 1 : lhs.sizes[l], rhs_size = r < 0 ? 1 : rhs.sizes[r];
    if (lhs_size == 1 && rhs_size == 1) continue;
    p.batch_sizes.push_back(lhs_size == 1 ? rhs_size : lhs_size);
    p.lhs.batch_strides.push_back(lhs_size == 1 ? 0 : lhs.strides[l]);
    p.rhs.batch_strides.push_back(rhs_size == 1 ? 0 : rhs.strides[r]);
  }
  merge_batches(p);
  return p;
}

bool lies_by_rows(const MatrixSide& side, std::int64_t rows, std::int64_t columns) {
  return (columns == 1 || side.column_stride == 1) && (rows == 1 || side.row_stride >= columns);
}
bool lies_by_columns(const MatrixSide& side, std::int64_t rows, std::int64_t columns) {
  return (rows == 1 || side.row_stride == 1) && (columns == 1 || side.column_stride >= rows);
}

}  // namespace fermata::gpu

// See irregular.h: the table, and the ops that are nothing but copies.
#include "codegen_cpu/irregular/irregular.h"

#include <cstddef>

#include "codegen_cpu/irregular/csr.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/shape.h"

namespace fermata {
namespace {

StridedSide side_of(const TensorView& view) { return {view.data, {view.strides, view.rank}}; }

}  // namespace

void concat_call(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  const std::size_t bytes = byte_size(out.dtype);
  const auto axis = static_cast<std::size_t>(args.attributes[0]);
  auto* to = static_cast<std::byte*>(out.data);
  for (const TensorView& in : args.inputs) {
    strided_copy({to, {out.strides, out.rank}}, side_of(in), {in.sizes, in.rank}, bytes);
    to += in.sizes[axis] * out.strides[axis] * static_cast<std::int64_t>(bytes);
  }
}

void update_call(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &values = args.inputs[1], &out = args.outputs[0];
  const std::size_t bytes = byte_size(out.dtype);
  if (out.data != x.data)  // else it is written over
    strided_copy(side_of(out), side_of(x), {x.sizes, x.rank}, bytes);
  auto* const start = static_cast<std::byte*>(out.data) + args.attributes[0] * static_cast<std::int64_t>(bytes);
  strided_copy({start, args.attributes.subspan(1)}, side_of(values), {values.sizes, values.rank}, bytes);
}

CallKernel irregular_kernel(Op op) {
  switch (op) {
    case Op::concat: return concat_call;
    case Op::take: return take_call;
    case Op::index_add: return index_add_call;
    case Op::update: return update_call;
    case Op::gather: return gather_call;
    case Op::scatter:
    case Op::scatter_add:
    case Op::scatter_multiply:
    case Op::scatter_maximum:
    case Op::scatter_minimum: return scatter_call;
    case Op::fold: return fold_call;
    case Op::csr_matmul: return csr_matmul_call;
    case Op::csr_sampled_matmul:
      return csr_sampled_matmul_call;
// clang-format off
#define FERMATA_SCAN(name, monoid, rule, doc) case Op::name: return scan_call;
#include "ir/ops.def"
      // clang-format on
    case Op::sort: return sort_call;
    case Op::argsort: return argsort_call;
    case Op::top_k_indices: return top_k_indices_call;
    case Op::searchsorted: return searchsorted_call;
    case Op::flatnonzero: return flatnonzero_call;
    default: return nullptr;
  }
}

}  // namespace fermata

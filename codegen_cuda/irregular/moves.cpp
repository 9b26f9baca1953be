// See irregular.h: the table, and the ops that are nothing but copies.
#include "codegen_cuda/irregular/call_source.h"
#include "codegen_cuda/irregular/irregular.h"

namespace fermata::gpu {

void concat_call(const CallArgs& args) {
  TensorView to = args.outputs[0];
  const auto axis = static_cast<std::size_t>(args.attributes[0]);
  const auto bytes = static_cast<std::int64_t>(byte_size(to.dtype));
  for (const TensorView& from : args.inputs) {
    to.sizes = from.sizes;
    copy_elements(from, to);
    to.data = static_cast<std::byte*>(to.data) + from.sizes[axis] * to.strides[axis] * bytes;
  }
}

void update_call(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &values = args.inputs[1], &out = args.outputs[0];
  copy_elements(x, out);
  TensorView part = values;
  part.data = static_cast<std::byte*>(out.data) + args.attributes[0] * static_cast<std::int64_t>(byte_size(out.dtype));
  part.strides = args.attributes.data() + 1;
  copy_elements(values, part);
}

CallKernel irregular_kernel(Op op) {
  switch (op) {
    case Op::concat: return concat_call;
    case Op::update: return update_call;
    case Op::take: return take_call;
    case Op::index_add: return index_add_call;
    case Op::csr_matmul: return csr_matmul_call;
    case Op::csr_sampled_matmul:
      return csr_sampled_matmul_call;
// clang-format off
#define FERMATA_SCAN(name, monoid, rule, doc) case Op::name: return scan_call;
#include "ir/ops.def"
      // clang-format on
    case Op::gather: return gather_call;
    case Op::scatter:
    case Op::scatter_add:
    case Op::scatter_multiply:
    case Op::scatter_maximum:
    case Op::scatter_minimum: return scatter_call;
    case Op::fold: return fold_call;
    case Op::sort: return sort_call;
    case Op::argsort: return argsort_call;
    case Op::top_k_indices: return top_k_indices_call;
    case Op::searchsorted: return searchsorted_call;
    case Op::flatnonzero: return flatnonzero_call;
    default: return nullptr;
  }
}

}  // namespace fermata::gpu

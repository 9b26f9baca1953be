// copy, concat and update: ops that are nothing but copies.
#include "ir/ops/moves.h"
#include "codegen_cuda/irregular/call_source.h"
#include "codegen_cuda/irregular/irregular.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"

namespace fermata::gpu {
namespace {

void copy_call(const CallArgs& args) {
  TensorView to = args.outputs[0];  // whose shape may differ: a reshape that is not a view
  const Shape strides = dense_strides(std::span(args.inputs[0].sizes, args.inputs[0].rank));
  to.rank = args.inputs[0].rank, to.sizes = args.inputs[0].sizes, to.strides = strides.data();
  copy_elements(args.inputs[0], to);
}

void concat_call(const CallArgs& args) {
  TensorView to = args.outputs[0];
  const auto axis = static_cast<std::size_t>(attributes_of<ops::Concat>(args).axis.value);
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
  const auto [offset, strides] = attributes_of<ops::Update>(args);
  part.data = static_cast<std::byte*>(out.data) + offset.value * static_cast<std::int64_t>(byte_size(out.dtype));
  part.strides = strides.value.data();
  copy_elements(values, part);
}

}  // namespace

FERMATA_KERNELS(cuda) {
  add_variant(Op::copy, BackendKey::cuda, {.name = "copy", .dtypes = kStoredReal, .call = &copy_call});
  add_nvrtc_kernel(Op::concat, &concat_call);
  add_nvrtc_kernel(Op::update, &update_call);
}

}  // namespace fermata::gpu

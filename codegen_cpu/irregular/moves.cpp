// concat and update: ops that are nothing but copies.
#include <cstddef>

#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/ops/moves.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"

namespace fermata {
namespace {

StridedSide side_of(const TensorView& view) { return {view.data, {view.strides, view.rank}}; }

/// Attributes [axis]; inputs differ along it only.
void concat_call(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  const std::size_t bytes = byte_size(out.dtype);
  const auto axis = static_cast<std::size_t>(attributes_of<ops::Concat>(args).axis.value);
  auto* to = static_cast<std::byte*>(out.data);
  for (const TensorView& in : args.inputs) {
    strided_copy({to, {out.strides, out.rank}}, side_of(in), {in.sizes, in.rank}, bytes);
    to += in.sizes[axis] * out.strides[axis] * static_cast<std::int64_t>(bytes);
  }
}

/// Attributes [offset, stride per axis of input 1 ...] over the row-major elements of input 0.
void update_call(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &values = args.inputs[1], &out = args.outputs[0];
  const std::size_t bytes = byte_size(out.dtype);
  if (out.data != x.data)  // else it is written over
    strided_copy(side_of(out), side_of(x), {x.sizes, x.rank}, bytes);
  const auto [offset, strides] = attributes_of<ops::Update>(args);
  auto* const start = static_cast<std::byte*>(out.data) + offset.value * static_cast<std::int64_t>(bytes);
  strided_copy({start, strides.value}, side_of(values), {values.sizes, values.rank}, bytes);
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_native_kernel(Op::concat, &concat_call);
  add_native_kernel(Op::update, &update_call);
}

}  // namespace fermata

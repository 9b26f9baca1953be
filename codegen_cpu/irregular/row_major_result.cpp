// See row_major_result.h.
#include "codegen_cpu/irregular/row_major_result.h"

#include "codegen_cpu/irregular/dense_elements.h"
#include "ir/shape.h"

namespace fermata {

void run_row_major(const CallArgs& args, FunctionRef<void(const CallArgs&)> run) {
  const TensorView& out = args.outputs[0];
  const Shape strides = dense_strides({out.sizes, out.rank});
  const Scratch<std::byte> room(out.element_count() * static_cast<std::int64_t>(byte_size(out.dtype)));
  TensorView dense = out;
  dense.data = room.data(), dense.strides = strides.data();
  CallArgs instead = args;
  instead.outputs = {&dense, 1};
  instead.epilogue = nullptr;
  run(instead);
  copy_elements(out, dense);
}

}  // namespace fermata

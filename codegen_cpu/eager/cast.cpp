// cast and copy.
#include <algorithm>

#include "codegen_cpu/complex/complex.h"
#include "codegen_cpu/eager/drivers.h"
#include "codegen_cpu/eager/loop_nest.h"
#include "codegen_cpu/irregular/operand_in_order.h"
#include "codegen_cpu/irregular/strided_copy.h"

namespace fermata::eager {

void run_copy(const CallArgs& args) {
  const TensorView &in = args.inputs[0], &out = args.outputs[0];
  const std::span<const std::int64_t> sizes{in.sizes, in.rank};
  // The output is dense in row-major order; its own shape may differ (a reshape that is not a view).
  const Shape dense = dense_strides(sizes);
  strided_copy({out.data, dense}, {in.data, {in.strides, in.rank}}, sizes, byte_size(in.dtype));
}

namespace {

void cast_elements(const CallArgs& args) {
  const TensorView &in = args.inputs[0], &out = args.outputs[0];
  const CastLoop loop = loop_tables().cast[static_cast<std::size_t>(in.dtype)][static_cast<std::size_t>(out.dtype)];
  const DType stored[] = {in.dtype};
  const LoopNest nest({out.sizes, out.rank}, args.inputs, stored);
  const auto bytes = static_cast<std::int64_t>(byte_size(out.dtype));
  const double cost = 0.1 + 0.04 * static_cast<double>(byte_size(in.dtype) + byte_size(out.dtype));
  nest.for_each_piece(cost, nest.all_in_place(), [&](std::int64_t begin, std::int64_t count) {
    LoopNest::Buffers buffers;  // not touched unless needed
    const LoopNest::Piece piece = nest.piece(0, begin, count, buffers);
    char* to = static_cast<char*>(out.data) + begin * bytes;
    loop(to, piece.data, piece.splat ? 1 : count);
    if (piece.splat)
      for (std::int64_t i = 1; i < count; ++i) std::copy_n(to, bytes, to + i * bytes);
  });
}

}  // namespace

void run_cast(const CallArgs& args) {
  if (args.inputs[0].dtype == args.outputs[0].dtype) return run_copy(args);
  if (is_complex(args.outputs[0].dtype)) return complex_cast_call(args);
  with_operands_in_order(args, &cast_elements);
}

FERMATA_KERNELS(cpu) {
  add_eager_kernel(Op::copy, &run_copy);
  add_eager_kernel(Op::cast, &run_cast);
}

}  // namespace fermata::eager

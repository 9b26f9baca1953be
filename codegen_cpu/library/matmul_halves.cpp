// matmul_f32 on any machine: its operands are widened, and their product is one of f32.
#include <array>

#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "dispatch/kernel_files.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// The call with operands of f32 that are dense in row-major order.
class WidenedCall {
 public:
  explicit WidenedCall(const CallArgs& args) : args_(args) {
    for (std::size_t k = 0; k < 2; ++k) {
      const TensorView& x = args.inputs[k];
      strides_[k] = dense_strides({x.sizes, x.rank});
      inputs_[k] = {nullptr, DType::f32, x.rank, x.sizes, strides_[k].data()};
    }
    args_.op = Op::matmul, args_.inputs = inputs_;
  }
  WidenedCall(const WidenedCall&) = delete;
  const CallArgs& args() const { return args_; }
  void set_operand(std::size_t k, float* data) { inputs_[k].data = data; }

 private:
  CallArgs args_;
  std::array<Shape, 2> strides_;
  std::array<TensorView, 2> inputs_;
};

void widen(const std::uint16_t* halves, DType dtype, std::int64_t count, float* to) {
  parallel_for(0, count, 0.2, [&](std::int64_t begin, std::int64_t end) {
    if (dtype == DType::bf16)
      for (std::int64_t i = begin; i < end; ++i) to[i] = widen_bfloat16(halves[i]);
    else
      for (std::int64_t i = begin; i < end; ++i) to[i] = widen_float16(halves[i]);
  });
}

/// The elements of a view in row-major order, as f32.
Scratch<float> widened(const TensorView& x) {
  const std::int64_t count = x.element_count();
  const bool dense = is_contiguous(x, 0, x.rank);
  const Scratch<std::uint16_t> copy(dense ? 0 : count);
  const std::span<const std::int64_t> sizes{x.sizes, x.rank};
  if (!dense) strided_copy({copy.data(), dense_strides(sizes)}, {x.data, {x.strides, x.rank}}, sizes, 2);
  Scratch<float> wide(count);
  widen(dense ? static_cast<const std::uint16_t*>(x.data) : copy.data(), x.dtype, count, wide.data());
  return wide;
}

bool is_for_onednn(const CallArgs& args) {
  return has_onednn() && matmul_onednn_fits(args) && matmul_onednn_cost(args) < matmul_portable_cost(args);
}

void matmul_widened(const CallArgs& args) {
  WidenedCall call(args);
  const Scratch<float> lhs = widened(args.inputs[0]), rhs = widened(args.inputs[1]);
  call.set_operand(0, lhs.data()), call.set_operand(1, rhs.data());
  if (is_for_onednn(call.args()))
    matmul_onednn(call.args());
  else
    matmul_portable(call.args());
}

double matmul_widened_cost(const CallArgs& args) {
  const WidenedCall call(args);
  const double product =
      is_for_onednn(call.args()) ? matmul_onednn_cost(call.args()) : matmul_portable_cost(call.args());
  return 200 + product + 0.3 * static_cast<double>(args.inputs[0].element_count() + args.inputs[1].element_count());
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_variant(Op::matmul_f32, BackendKey::cpu,
              {.name = "widened",
               .form = KernelForm::library,
               .dtypes = DTypeSet(DType::f16) | DType::bf16,
               .call = &matmul_widened,
               .cost = &matmul_widened_cost,
               .epilogue = EpilogueForm::tiles});
}

}  // namespace fermata

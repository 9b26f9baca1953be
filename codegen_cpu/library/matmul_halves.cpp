// matmul_f32 on any machine: its operands are widened, and their product is one of f32.
#include <array>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "dispatch/kernel_files.h"
#include "ir/shape.h"

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

bool is_for_onednn(const CallArgs& args) {
  return has_onednn() && matmul_onednn_fits(args) && matmul_onednn_cost(args) < matmul_portable_cost(args);
}

void matmul_widened(const CallArgs& args) {
  WidenedCall call(args);
  const Scratch<float> lhs(args.inputs[0].element_count()), rhs(args.inputs[1].element_count());
  const std::array<float*, 2> data{lhs.data(), rhs.data()};
  for (std::size_t k = 0; k < 2; ++k) {
    call.set_operand(k, data[k]);
    eager::eager_kernel(Op::cast)({Op::cast, args.inputs.subspan(k, 1), call.args().inputs.subspan(k, 1), {}, {}});
  }
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

// See register.h.
#include "codegen_cuda/register.h"

#include "codegen_cuda/irregular/irregular.h"
#include "codegen_cuda/library/matmul.h"
#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

void add_irregular_variants() {
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const CallKernel kernel = gpu::irregular_kernel(static_cast<Op>(i)))
      add_variant(static_cast<Op>(i), BackendKey::cuda, {.name = "nvrtc", .dtypes = kRealOrBoolean, .call = kernel});
}

void add_convolution_variants() {
  for (const Op op : {Op::convolution, Op::convolution_data_gradient, Op::convolution_weight_gradient})
    add_variant(op, BackendKey::cuda,
                {.name = "nvrtc", .form = KernelForm::library, .dtypes = kFloating, .call = &gpu::convolution_call});
}

void add_product_variants() {
  const KernelVariant library{.name = "cublaslt",
                              .form = KernelForm::library,
                              .dtypes = DTypeSet(DType::f32) | DType::f16 | DType::bf16 | DType::f64,
                              .call = &gpu::matmul_cublaslt,
                              .fits = &gpu::matmul_cublaslt_fits,
                              .cost = &gpu::matmul_cublaslt_cost,
                              .fits_text = gpu::kMatmulCublasltFits,
                              .epilogue = EpilogueForm::whole,
                              .by_rows = true};
  const KernelVariant tiled{.name = "tiled",
                            .form = KernelForm::library,
                            .dtypes = kReal,
                            .call = &gpu::matmul_tiled,
                            .cost = &gpu::matmul_tiled_cost,
                            .by_rows = true};
  KernelVariant bytes = library, tiled_bytes = tiled;
  bytes.dtypes = DType::i8, tiled_bytes.dtypes = DTypeSet(DType::i8) | DType::u8;
  add_variant(Op::matmul, BackendKey::cuda, library);
  add_variant(Op::matmul, BackendKey::cuda, tiled);
  add_variant(Op::matmul_i32, BackendKey::cuda, bytes);
  add_variant(Op::matmul_i32, BackendKey::cuda, tiled_bytes);
  add_variant(Op::matmul_packed, BackendKey::cuda, tiled_bytes);
}

}  // namespace

void register_cuda_kernels() {
  add_irregular_variants();
  add_product_variants();
  add_convolution_variants();
}

}  // namespace fermata

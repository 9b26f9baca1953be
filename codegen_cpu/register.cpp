// See register.h. Ops are registered by family, from the op table, so that a new row has all its kernels.
#include "codegen_cpu/register.h"

#include "codegen_cpu/complex/complex.h"
#include "codegen_cpu/cpu_backend.h"
#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/fft.h"
#include "codegen_cpu/library/lapack.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_amx.h"
#include "codegen_cpu/library/matmul_bytes.h"
#include "dispatch/emit.h"
#include "dispatch/kernel_table.h"
#include "runtime/backend_memory.h"

namespace fermata {
namespace {

/// A call kernel of a reduction takes the operand as it is, and converts as it reads.
DTypeSet call_dtypes(Op op) { return family(op) == Family::reduce ? kRealOrBoolean : emitted_dtypes(op); }

void add_eager_variants() {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const CallKernel kernel = eager::eager_kernel(op);
    if (kernel == nullptr) continue;
    KernelVariant variant{.name = "simd", .dtypes = call_dtypes(op), .call = kernel};
    if (is_pointwise(op))
      for (std::size_t t = 0; t < kDTypeCount; ++t)
        variant.inner[t] = eager::eager_inner_loop(op, static_cast<DType>(t));
    add_variant(op, BackendKey::cpu, std::move(variant));
  }
}

void add_irregular_variants() {
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const CallKernel kernel = irregular_kernel(static_cast<Op>(i)))
      add_variant(static_cast<Op>(i), BackendKey::cpu, {.name = "native", .dtypes = kNumbersOrBoolean, .call = kernel});
}

/// Complex numbers have kernels by op; a cast of a real operand to a complex result is the other cast kernel's
/// business.
void add_complex_variants() {
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const CallKernel kernel = complex_kernel(static_cast<Op>(i)))
      add_variant(static_cast<Op>(i), BackendKey::cpu, {.name = "complex", .dtypes = kComplex, .call = kernel});
  add_variant(Op::complex, BackendKey::cpu,
              {.name = "complex", .dtypes = DTypeSet(DType::f32) | DType::f64, .call = &complex_from_parts_call});
}

void add_linalg_variants() {
  constexpr DTypeSet kSolved = DTypeSet(DType::f32) | DType::f64 | kComplex;
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const CallKernel kernel = lapack_kernel(static_cast<Op>(i)))
      add_variant(static_cast<Op>(i), BackendKey::cpu,
                  {.name = has_lapack() ? "lapack" : "missing",
                   .form = KernelForm::library,
                   .dtypes = kSolved,
                   .call = kernel});
  for (const Op op : {Op::fft, Op::rfft, Op::irfft})
    add_variant(op, BackendKey::cpu,
                {.name = has_fft() ? "kissfft" : "missing",
                 .form = KernelForm::library,
                 .dtypes = op == Op::rfft ? DTypeSet(DType::f32) | DType::f64 : kComplex,
                 .call = &fft_call});
}

void add_matmul_variants() {
  if (has_amx())
    add_variant(Op::matmul, BackendKey::cpu,
                {.name = "amx",
                 .form = KernelForm::library,
                 .dtypes = DTypeSet(DType::f32) | DType::bf16 | DType::i8 | DType::u8,
                 .call = &matmul_amx,
                 .fits = &matmul_amx_fits,
                 .cost = &matmul_amx_cost,
                 .fits_text = kMatmulAmxFits,
                 .epilogue = EpilogueForm::tiles,
                 .in_batches = true,
                 .by_rows = true});
  if (has_onednn())
    add_variant(Op::matmul, BackendKey::cpu,
                {.name = "onednn",
                 .form = KernelForm::library,
                 .dtypes = DTypeSet(DType::f32) | DType::bf16 | DType::i8,
                 .call = &matmul_onednn,
                 .fits = &matmul_onednn_fits,
                 .cost = &matmul_onednn_cost,
                 .fits_text = kMatmulOnednnFits,
                 .epilogue = EpilogueForm::tiles,
                 .in_batches = true,
                 .by_rows = true});
  if (has_libxsmm())
    add_variant(Op::matmul, BackendKey::cpu,
                {.name = "libxsmm",
                 .form = KernelForm::library,
                 .dtypes = DTypeSet(DType::f32) | DType::f64,
                 .call = &matmul_libxsmm,
                 .fits = &matmul_libxsmm_fits,
                 .cost = &matmul_libxsmm_cost,
                 .fits_text = kMatmulLibxsmmFits,
                 .epilogue = EpilogueForm::tiles,
                 .in_batches = true,
                 .by_rows = true});
  add_variant(Op::matmul, BackendKey::cpu,
              {.name = "portable",
               .form = KernelForm::library,
               .dtypes = kReal,
               .call = &matmul_portable,
               .cost = &matmul_portable_cost,
               .epilogue = EpilogueForm::tiles,
               .in_batches = true,
               .by_rows = true});
}

void add_byte_product_variants() {
  constexpr DTypeSet kBytes = DTypeSet(DType::i8) | DType::u8;
  if (has_amx()) {
    add_variant(Op::matmul_i32, BackendKey::cpu,
                {.name = "amx",
                 .form = KernelForm::library,
                 .dtypes = kBytes,
                 .call = &matmul_i32_amx,
                 .fits = &matmul_i32_amx_fits,
                 .cost = &matmul_i32_amx_cost,
                 .fits_text = kMatmulAmxFits});
    add_variant(Op::matmul_packed, BackendKey::cpu,
                {.name = "amx",
                 .form = KernelForm::library,
                 .dtypes = kBytes,
                 .call = &matmul_packed_amx,
                 .fits = &matmul_packed_amx_fits,
                 .fits_text = kMatmulAmxFits});
  }
  if (has_onednn())
    add_variant(Op::matmul_i32, BackendKey::cpu,
                {.name = "onednn",
                 .form = KernelForm::library,
                 .dtypes = kBytes,
                 .call = &matmul_i32_onednn,
                 .fits = &matmul_i32_onednn_fits,
                 .cost = &matmul_i32_onednn_cost,
                 .fits_text = kMatmulI32OnednnFits});
  if (has_vnni())
    add_variant(Op::matmul_packed, BackendKey::cpu,
                {.name = "vnni",
                 .form = KernelForm::library,
                 .dtypes = kBytes,
                 .call = &matmul_packed_vnni,
                 .fits = &matmul_packed_vnni_fits,
                 .fits_text = kMatmulPackedVnniFits});
  add_variant(Op::matmul_i32, BackendKey::cpu,
              {.name = "portable",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_i32_portable,
               .cost = &matmul_i32_portable_cost});
  add_variant(Op::matmul_packed, BackendKey::cpu,
              {.name = "portable",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_packed_portable,
               .cost = &matmul_packed_portable_cost});
}

void add_convolution_variants() {
  for (const Op op : {Op::convolution, Op::convolution_data_gradient, Op::convolution_weight_gradient}) {
    const EpilogueForm epilogue = op == Op::convolution_weight_gradient ? EpilogueForm::none : EpilogueForm::planes;
    if (has_amx() && op != Op::convolution_weight_gradient)
      add_variant(op, BackendKey::cpu,
                  {.name = "amx",
                   .form = KernelForm::library,
                   .dtypes = DType::f32,
                   .call = &convolution_amx,
                   .fits = &convolution_amx_fits,
                   .cost = &convolution_amx_cost,
                   .fits_text = kConvolutionAmxFits,
                   .epilogue = EpilogueForm::planes});
    if (has_onednn())
      add_variant(op, BackendKey::cpu,
                  {.name = "onednn",
                   .form = KernelForm::library,
                   .dtypes = DTypeSet(DType::f32) | DType::f16 | DType::bf16,
                   .call = &convolution_onednn,
                   .fits = &convolution_onednn_fits,
                   .cost = &convolution_onednn_cost,
                   .fits_text = kConvolutionOnednnFits,
                   .epilogue = epilogue});
    add_variant(op, BackendKey::cpu,
                {.name = "portable",
                 .form = KernelForm::library,
                 .dtypes = kFloating,
                 .call = &convolution_portable,
                 .cost = &convolution_portable_cost,
                 .epilogue = epilogue});
  }
}

}  // namespace

void register_cpu_backend() {
  register_backend(BackendKey::cpu, std::make_unique<CpuBackend>());
  // Straight to the caching allocator: every run asks for memory.
  set_allocator(BackendKey::cpu, [](BackendKey, std::size_t bytes) { return Storage::allocate(bytes); });
  add_eager_variants();
  add_emit_variants(BackendKey::cpu, "jit");
  add_irregular_variants();
  add_complex_variants();
  add_linalg_variants();
  add_matmul_variants();
  add_byte_product_variants();
  add_convolution_variants();
}

}  // namespace fermata

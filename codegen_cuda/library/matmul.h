// Matrix products on CUDA: by cuBLASLt if it is available and supports the problem, otherwise by our own kernel.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata::gpu {

// f32 (full precision unless TF32 is enabled), f16, bf16, f64; and bytes accumulated in i32.
void matmul_cublaslt(const CallArgs& args);
bool matmul_cublaslt_fits(const CallArgs& args);
double matmul_cublaslt_cost(const CallArgs& args);
inline constexpr const char* kMatmulCublasltFits = "cuBLASLt, loaded at run time";

// Any dtype and strides, tiled through shared memory; accumulates in order of k. Also matmul_i32 and matmul_packed.
void matmul_tiled(const CallArgs& args);
double matmul_tiled_cost(const CallArgs& args);

/// The epilogues of the library. gelu is the approximation by tanh.
enum class MatmulEpilogue : std::uint8_t { none, bias, relu, bias_relu, gelu, bias_gelu };
/// Computes a product with `bias` (one per column, or null) and an epilogue. Returns false without launching anything
/// if the library has no kernel for it.
bool matmul_with(const CallArgs& args, MatmulEpilogue epilogue, const void* bias);

/// Allows f32 products to round operands to TF32: much faster, about three digits. Returns the previous setting.
bool set_tf32(bool on);
bool uses_tf32();

}  // namespace fermata::gpu

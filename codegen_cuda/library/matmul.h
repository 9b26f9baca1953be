// Matrix products on CUDA: by cuBLASLt where the library is there and takes the problem, by a kernel of our own
// otherwise.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata::gpu {

// f32 (true f32, unless TF32 is chosen), f16, bf16, f64; and bytes with sums in i32.
void matmul_cublaslt(const CallArgs& args);
bool matmul_cublaslt_fits(const CallArgs& args);
double matmul_cublaslt_cost(const CallArgs& args);
inline constexpr const char* kMatmulCublasltFits = "cuBLASLt, loaded at run time";

// Any dtype and strides, tiles by way of shared memory; sums run in order of k. matmul_i32 and matmul_packed too.
void matmul_tiled(const CallArgs& args);
double matmul_tiled_cost(const CallArgs& args);

/// The epilogues of the library. gelu is the approximation by tanh.
enum class MatmulEpilogue : std::uint8_t { none, bias, relu, bias_relu, gelu, bias_gelu };
/// The product, with `bias` (one for each column, or null) and an epilogue. False where the library has no kernel
/// for both; nothing has been started then.
bool matmul_with(const CallArgs& args, MatmulEpilogue epilogue, const void* bias);

/// Whether products of f32 may round their factors to TF32: much faster, about three digits. Returns what was chosen
/// before.
bool set_tf32(bool on);
bool uses_tf32();

}  // namespace fermata::gpu

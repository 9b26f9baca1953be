// Matrix products as `call` kernels: oneDNN, libxsmm and our own (matmul_amx.h has those for tiles), each
// single-threaded per tile inside our pool.
//
// Operands keep their own ranks and any strides; a matrix that is dense along one of its axes is passed on as it is
// or as transposed, others are packed. Bits never depend on the number of threads: the libraries' tiles depend on sizes
// only, and in our own kernels an element does not depend on its tile. f16 and bf16 accumulate in f32; integers wrap.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// oneDNN: f32, bf16 and, where the processor multiplies bytes without saturating, i8. Of f32 best from about 64 up to
/// what a second-level cache holds.
void matmul_onednn(const CallArgs& args);
void matmul_onednn(const CallArgs& args, TileEpilogue epilogue);
bool matmul_onednn_fits(const CallArgs& args);
double matmul_onednn_cost(const CallArgs& args);
inline constexpr const char* kMatmulOnednnFits = "f32, bf16 or i8, and no empty axis";

/// Our own by pairs of bf16 (bf16_pairs.h); of matmul_f32, too.
void matmul_bf16_pairs(const CallArgs& args);
void matmul_bf16_pairs(const CallArgs& args, TileEpilogue epilogue);
bool matmul_bf16_pairs_fits(const CallArgs& args);
double matmul_bf16_pairs_cost(const CallArgs& args);
inline constexpr const char* kMatmulBf16PairsFits = "an even K, and no empty axis";

/// libxsmm: f32 and f64, one small matrix times many rows, or many small products.
void matmul_libxsmm(const CallArgs& args);
void matmul_libxsmm(const CallArgs& args, TileEpilogue epilogue);
bool matmul_libxsmm_fits(const CallArgs& args);
double matmul_libxsmm_cost(const CallArgs& args);
inline constexpr const char* kMatmulLibxsmmFits = "N at most 128, K at most 256, and no empty axis";

/// Many products of tiny matrices, with the bits of matmul_portable. AVX2 or AVX-512.
void matmul_tiny(const CallArgs& args);
void matmul_tiny(const CallArgs& args, TileEpilogue epilogue);
bool matmul_tiny_fits(const CallArgs& args);
double matmul_tiny_cost(const CallArgs& args);
inline constexpr const char* kMatmulTinyFits = "M, N and K at most 8, and no empty axis";

/// Our own kernels: every real dtype and size. Each element is one chain of fused multiply-adds in order of k (a matrix
/// times a vector that both lie along k: 64 chains merged by halves), so bits are the same on every processor.
void matmul_portable(const CallArgs& args);
void matmul_portable(const CallArgs& args, TileEpilogue epilogue);
bool matmul_portable_fits(const CallArgs& args);
/// Those that libfermata_run has, too (matmul_portable_body.h); the others are in libfermata_run_math.
inline constexpr DTypeSet kShippedProducts = kFloating | DType::i32 | DType::u32;
double matmul_portable_cost(const CallArgs& args);

/// Whether this build has the library and this processor can run it.
bool has_onednn();
bool has_libxsmm();

}  // namespace fermata

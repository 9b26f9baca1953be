// Products of bytes, added up in i32: what quantized matrix products are made of. Sums wrap, so every kernel gives the
// same bits.
#pragma once

#include "runtime/tensor_view.h"

namespace fermata {

/// matmul_i32 through oneDNN: i8 on the right, where the processor multiplies bytes without saturating.
void matmul_i32_onednn(const CallArgs& args);
bool matmul_i32_onednn_fits(const CallArgs& args);
double matmul_i32_onednn_cost(const CallArgs& args);
inline constexpr const char* kMatmulI32OnednnFits = "i8 on the right, VNNI, and no empty axis";
/// Any bytes: widened, and then the product of i32.
void matmul_i32_portable(const CallArgs& args);
double matmul_i32_portable_cost(const CallArgs& args);

/// Any bytes, by products of pairs (vpmaddwd): for processors with AVX2 and without VNNI, and for what kernels with
/// VNNI do not do.
void matmul_i32_pairs(const CallArgs& args);
bool matmul_i32_pairs_fits(const CallArgs& args);
double matmul_i32_pairs_cost(const CallArgs& args);
inline constexpr const char* kMatmulI32PairsFits = "no VNNI, or u8 on the right";
void matmul_packed_pairs(const CallArgs& args);
bool matmul_packed_pairs_fits(const CallArgs& args);
double matmul_packed_pairs_cost(const CallArgs& args);
inline constexpr const char* kMatmulPackedPairsFits = "no VNNI, or i8 on the left";
bool has_byte_pairs();

/// matmul_packed where the processor has AVX-512 VNNI and FERMATA_CPU lets it be used: u8 on the left, blocks read as
/// they lie. oneDNN 2.6 has only its reference kernel for such blocks.
void matmul_packed_vnni(const CallArgs& args);
bool matmul_packed_vnni_fits(const CallArgs& args);
bool has_vnni();
inline constexpr const char* kMatmulPackedVnniFits = "u8 on the left";
/// Any bytes on the left: the blocks are read back into rows of i32 first.
void matmul_packed_portable(const CallArgs& args);
double matmul_packed_portable_cost(const CallArgs& args);

}  // namespace fermata

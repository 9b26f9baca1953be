// Matrix products by the tile registers of AMX: bf16, bytes, and f32 as sums of three bf16 each
// (docs/adr/017-f32-products-through-bf16.md).
//
// An element is the sum of blocks of k, each added up in tile registers, and does not depend on what else is in its
// tile: bits are the same for any number of threads and any cut into rows. Rows and columns of f32 that hold an
// infinity or a NaN, or are very large or small, are computed by the kernel of matmul_portable.
#pragma once

#include <cstdint>

#include "codegen_cpu/library/matmul.h"

namespace fermata {

/// Whether the processor has tiles, the system lets this process use them, and FERMATA_CPU does.
bool has_amx();

/// FERMATA_F32_PRODUCTS: split, or fma.
bool splits_f32();
/// Whether lines of f32 whose largest magnitude has these bits may be split: no infinity or NaN, sums far from
/// overflow, and parts that are flushed to zero, which are below 2^-126, far below the rounding of the rest.
bool can_be_split(std::uint32_t largest);

/// matmul of bf16, i8, u8 and, unless FERMATA_F32_PRODUCTS=fma, f32.
void matmul_amx(const CallArgs& args);
void matmul_amx(const CallArgs& args, TileEpilogue epilogue);
bool matmul_amx_fits(const CallArgs& args);
double matmul_amx_cost(const CallArgs& args);
inline constexpr const char* kMatmulAmxFits = "no empty axis; f32 unless FERMATA_F32_PRODUCTS=fma";

/// matmul_i32 of any bytes.
void matmul_i32_amx(const CallArgs& args);
bool matmul_i32_amx_fits(const CallArgs& args);
double matmul_i32_amx_cost(const CallArgs& args);

/// matmul_packed, whose blocks are read as they lie.
void matmul_packed_amx(const CallArgs& args);
bool matmul_packed_amx_fits(const CallArgs& args);

}  // namespace fermata

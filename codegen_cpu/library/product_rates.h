// How fast the kernels of products are on a processor: what their costs are made of.
//
// Only how they compare decides anything, and that differs from one core to the next by more than sizes make up for.
// Processors that nobody has measured are taken for the first one in the table of product_rates.cpp.
#pragma once

namespace fermata {

/// Multiply-adds of f32, if nothing else is said, per nanosecond of one core, on products that fill its registers.
struct ProductRates {
  double portable_avx512, portable_avx2;
  double onednn_avx512, onednn_avx2;
  double onednn_far;      // times as long from where operands and result are more than 4 MiB
  double onednn_packing;  // then, ns for each element of the right side
  double libxsmm;
  double onednn_bf16, onednn_bf16_far;  // by pairs (vdpbf16ps), and as above
  double onednn_bytes;                  // by VNNI
};
const ProductRates& product_rates();

}  // namespace fermata

// The inner part of the product with packed weights, compiled once per instruction set (packed_weights_*.cpp).
#pragma once

#include <cstdint>

namespace fermata {

/// out[rows, 32] = x[rows, depth] times one block of weights (ir/packed_weights.h).
struct WeightsTile {
  /// Rows follow each other, of `depth` elements; with 4 bits element k is divided by 16^(k % 8), where k % 8 is not 7.
  const float* x;
  const float* offsets;  // with 4 bits: for each row and group -8 times the sum of x
  const std::uint8_t* block;
  float* out;
  std::int64_t rows, depth;
  std::int64_t group;  // 0: 8 bits
};
using WeightsKernel = void (*)(const WeightsTile& tile);

extern const WeightsKernel kWeightsBaseline;
#if defined(__x86_64__)
extern const WeightsKernel kWeightsAvx2;
extern const WeightsKernel kWeightsAvx512;
#endif

}  // namespace fermata

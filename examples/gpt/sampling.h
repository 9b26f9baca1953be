// The choice of the next token.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace gpt {

struct Sampling {
  double temperature = 0.8;  // 0: always the likeliest
  std::int64_t top_k = 0;    // number of most likely tokens to sample from; 0: all
  double top_p = 1;          // among the likeliest that together have this probability (Holtzman et al., 2019)
};

/// Deterministic for the same seed and logits.
std::int64_t sample(const std::vector<float>& logits, const Sampling& how, std::mt19937_64& random);

}  // namespace gpt

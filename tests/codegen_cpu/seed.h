// The seed of random tests of kernels: FERMATA_TEST_SEED, or always the same.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace fermata {

inline std::uint64_t seed() {
  const char* text = std::getenv("FERMATA_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 77u;
}

}  // namespace fermata

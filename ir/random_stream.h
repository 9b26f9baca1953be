// Derivation of keys for random number streams.
#pragma once

#include <bit>
#include <cstdint>

namespace fermata {

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): mixes consecutive words.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// The key of run number `run` of a function, for a call whose seed was drawn from the generator.
constexpr std::uint64_t stream_key(double seed, std::uint64_t run) {
  return mixed(std::bit_cast<std::uint64_t>(seed) ^ mixed(run));
}

}  // namespace fermata

// Keys of streams of random numbers, made of other numbers.
#pragma once

#include <bit>
#include <cstdint>

namespace fermata {

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): well mixed words from consecutive ones.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// The key of run number `run` of a function, for a call that has a draw of the generator as its seed.
constexpr std::uint64_t stream_key(double seed, std::uint64_t run) {
  return mixed(std::bit_cast<std::uint64_t>(seed) ^ mixed(run));
}

}  // namespace fermata

// Elements that lie apart in memory, brought together: every other one, and those in the opposite order, in vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace fermata {

/// 16 bytes of elements.
template <std::size_t kBytes> struct Elements {
  using Element = std::conditional_t<
      kBytes == 1, std::uint8_t,
      std::conditional_t<kBytes == 2, std::uint16_t, std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;
  typedef Element Vector __attribute__((vector_size(16)));
  static constexpr int kCount = 16 / static_cast<int>(kBytes);
  static Vector load(const char* from) {
    Vector v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  }
};

/// In the opposite order, from the one at `from` on; gives how many are done, all but a few. The bytes of a word are
/// turned by one instruction.
template <std::size_t kBytes, int... kLane>
std::int64_t reverse_elements(char* to, const char* from, std::int64_t count, std::integer_sequence<int, kLane...>) {
  using E = Elements<kBytes>;
  constexpr auto kElement = static_cast<std::int64_t>(kBytes);
  constexpr std::int64_t kCount = kBytes == 1 ? 8 : E::kCount;
  std::int64_t i = 0;
  for (; i + kCount <= count; i += kCount) {
    const char* const at = from - (i + kCount - 1) * kElement;
    if constexpr (kBytes == 1) {
      std::uint64_t word;
      std::memcpy(&word, at, sizeof(word));
      word = __builtin_bswap64(word);
      std::memcpy(to + i, &word, sizeof(word));
    } else if constexpr (kBytes == 2) {  // pairs, and then what is in each
      using Pairs = Elements<4>;
      const Pairs::Vector v = Pairs::load(at), pairs = __builtin_shufflevector(v, v, 3, 2, 1, 0);
      const Pairs::Vector turned = pairs << 16 | pairs >> 16;
      std::memcpy(to + i * kElement, &turned, sizeof(turned));
    } else {
      const typename E::Vector v = E::load(at);
      const typename E::Vector turned = __builtin_shufflevector(v, v, (E::kCount - 1 - kLane)...);
      std::memcpy(to + i * kElement, &turned, sizeof(turned));
    }
  }
  return i;
}
/// Every other one; nothing beyond the last is read.
template <std::size_t kBytes, int... kLane>
std::int64_t every_other_element(char* to, const char* from, std::int64_t count, std::integer_sequence<int, kLane...>) {
  using E = Elements<kBytes>;
  constexpr auto kElement = static_cast<std::int64_t>(kBytes);
  std::int64_t i = 0;
  for (; i + E::kCount < count; i += E::kCount) {
    const char* const at = from + 2 * i * kElement;
    const typename E::Vector taken = __builtin_shufflevector(E::load(at), E::load(at + 16), (2 * kLane)...);
    std::memcpy(to + i * kElement, &taken, sizeof(taken));
  }
  return i;
}

/// `count` elements that lie `stride` bytes apart, one after the other; nothing between or beyond them is needed.
template <std::size_t kBytes>
void gather_elements(char* to, const char* from, std::int64_t stride, std::int64_t count) {
  constexpr auto kElement = static_cast<std::int64_t>(kBytes);
  constexpr std::make_integer_sequence<int, Elements<kBytes>::kCount> kLanes;
  std::int64_t i = 0;
  if (stride == -kElement) i = reverse_elements<kBytes>(to, from, count, kLanes);
  if (stride == 2 * kElement) i = every_other_element<kBytes>(to, from, count, kLanes);
  for (; i < count; ++i) std::memcpy(to + i * kElement, from + i * stride, kBytes);
}

}  // namespace fermata

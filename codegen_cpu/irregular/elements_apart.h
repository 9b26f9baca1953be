// Elements that lie apart in memory, brought together: every other one, and those in the opposite order, in vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace fermata {

/// 16 bytes of elements.
template <std::size_t kBytes> struct ElementVector {
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

/// A vector of them, or eight bytes, in the opposite order.
template <std::size_t kBytes, int... kLane>
void reverse_vector(char* to, const char* from, std::integer_sequence<int, kLane...>) {
  using E = ElementVector<kBytes>;
  if constexpr (kBytes == 1) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof(word));
    word = __builtin_bswap64(word);
    std::memcpy(to, &word, sizeof(word));
  } else if constexpr (kBytes == 2) {  // pairs, and then what is in each
    using Pairs = ElementVector<4>;
    const Pairs::Vector v = Pairs::load(from), pairs = __builtin_shufflevector(v, v, 3, 2, 1, 0);
    const Pairs::Vector turned = pairs << 16 | pairs >> 16;
    std::memcpy(to, &turned, sizeof(turned));
  } else {
    const typename E::Vector v = E::load(from);
    const typename E::Vector turned = __builtin_shufflevector(v, v, (E::kCount - 1 - kLane)...);
    std::memcpy(to, &turned, sizeof(turned));
  }
}
/// In which direction elements in the opposite order are read. Processors do not fetch ahead of what goes down through
/// rows that go up (Zen 5: four times as long), nor the other way.
enum class Reading : bool { down, up };

/// In the opposite order, from the one at `from` on.
template <std::size_t kBytes> void reverse_elements(char* to, const char* from, std::int64_t count, Reading reading) {
  using E = ElementVector<kBytes>;
  constexpr auto kElement = static_cast<std::int64_t>(kBytes);
  constexpr std::int64_t kCount = kBytes == 1 ? 8 : E::kCount;
  constexpr std::make_integer_sequence<int, E::kCount> kLanes;
  const std::int64_t whole = count / kCount * kCount;
  const auto part = [&](std::int64_t i) {
    reverse_vector<kBytes>(to + i * kElement, from - (i + kCount - 1) * kElement, kLanes);
  };
  if (reading == Reading::up)
    for (std::int64_t i = whole; i > 0; i -= kCount) part(i - kCount);
  else
    for (std::int64_t i = 0; i < whole; i += kCount) part(i);
  for (std::int64_t i = whole; i < count; ++i) std::memcpy(to + i * kElement, from - i * kElement, kBytes);
}
/// Every other one; nothing beyond the last is read.
template <std::size_t kBytes, int... kLane>
std::int64_t every_other_element(char* to, const char* from, std::int64_t count, std::integer_sequence<int, kLane...>) {
  using E = ElementVector<kBytes>;
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
void gather_elements(char* to, const char* from, std::int64_t stride, std::int64_t count, Reading reversed) {
  constexpr auto kElement = static_cast<std::int64_t>(kBytes);
  constexpr std::make_integer_sequence<int, ElementVector<kBytes>::kCount> kLanes;
  std::int64_t i = 0;
  constexpr std::int64_t kFew = 8;  // of which a call takes longer
  if (stride == kElement && count >= kFew)
    return static_cast<void>(std::memcpy(to, from, static_cast<std::size_t>(count * kElement)));
  if (stride == -kElement) return reverse_elements<kBytes>(to, from, count, reversed);
  if (stride == 2 * kElement) i = every_other_element<kBytes>(to, from, count, kLanes);
  for (; i < count; ++i) std::memcpy(to + i * kElement, from + i * stride, kBytes);
}

}  // namespace fermata

// Philox 4x32-10 (J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and the two
// distributions.
//
// Element i's words depend on (key, offset, i) only. Constants are those of the paper and of Random123; the test checks
// its published vectors.
#pragma once

#include "ir/scalar_math/logarithm.h"
#include "ir/scalar_math/trigonometric.h"

namespace fermata::math {

template <class W> struct PhiloxWords { W word[4]; };

template <class W> PhiloxWords<W> philox(PhiloxWords<W> counter, W key0, W key1) {
  const W multiplier0(0xD2511F53u), multiplier1(0xCD9E8D57u);
  W a = counter.word[0], b = counter.word[1], c = counter.word[2], d = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const W high_a = mul_high(multiplier0, a), low_a = multiplier0 * a;
    const W high_c = mul_high(multiplier1, c), low_c = multiplier1 * c;
    a = (high_c ^ b) ^ key0, b = low_c, c = (high_a ^ d) ^ key1, d = low_a;
    key0 = key0 + W(0x9E3779B9u), key1 = key1 + W(0xBB67AE85u);
  }
  return {{a, b, c, d}};
}

/// The four words of one element. `Index` is an i64 value, `Word64` a u64 value.
template <class Index, class Word64> auto philox_words(Index index, Word64 key, Word64 offset) {
  using W = typename Word64::template Rebind<std::uint32_t>;
  const auto low = [](Word64 v) { return convert<std::uint32_t>(v); };
  const auto high = [](Word64 v) { return convert<std::uint32_t>(v >> Word64(std::uint64_t{32})); };
  const Word64 i = bitcast<std::uint64_t>(index);
  return philox<W>({{low(i), high(i), low(offset), high(offset)}}, low(key), high(key));
}

/// The first two words for a counter of 64 bits, as one; `Word64` is a u64 value.
template <class Word64> Word64 philox_bits(Word64 counter, Word64 key) {
  using W = typename Word64::template Rebind<std::uint32_t>;
  const auto low = [](Word64 v) { return convert<std::uint32_t>(v); };
  const auto high = [](Word64 v) { return convert<std::uint32_t>(v >> Word64(std::uint64_t{32})); };
  const auto words = philox<W>({{low(counter), high(counter), W(0u), W(0u)}}, low(key), high(key));
  return convert<std::uint64_t>(words.word[1]) << Word64(std::uint64_t{32}) | convert<std::uint64_t>(words.word[0]);
}

/// [0, 1) with 24 bits (f32, from one word) or 53 (f64, from two).
template <class V, class W> V uniform_from_words(W first, W second) {
  const auto top = [](W word, unsigned dropped) {
    return convert<ElementOfValue<V>>(bitcast<std::int32_t>(word >> W(std::uint32_t{dropped})));
  };
  if constexpr (is_double_value<V>) {
    return fma(top(first, 5), constant<V>(0x1p26), top(second, 6)) * constant<V>(0x1p-53);
  } else {
    return top(first, 8) * constant<V>(0x1p-24);
  }
}

template <class V, class Index, class Word64> V random_uniform(Index index, Word64 key, Word64 offset) {
  const auto words = philox_words(index, key, offset);
  return uniform_from_words<V>(words.word[0], words.word[1]);
}

/// Box and Muller (1958): sqrt(-2 log u) cos(2 pi v) with u in (0, 1].
template <class V, class Index, class Word64> V random_normal(Index index, Word64 key, Word64 offset) {
  const auto words = philox_words(index, key, offset);
  const auto& w = words.word;
  constexpr bool wide = is_double_value<V>;
  const V u = uniform_from_words<V>(w[0], w[1]) + constant<V>(wide ? 0x1p-53 : 0x1p-24);
  const V v = uniform_from_words<V>(w[wide ? 2 : 1], w[wide ? 3 : 2]);
  return sqrt(log_of_positive(u) * constant<V>(-2)) * cos_of_turns(v);
}

}  // namespace fermata::math

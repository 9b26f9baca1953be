// See keyed_hash.h. Constants and rounds are those of the paper and its reference implementation.
#include "runtime/keyed_hash.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace fermata {
namespace {

struct State {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1, v1 = std::rotl(v1, 13), v1 ^= v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16), v3 ^= v2;
    v0 += v3, v3 = std::rotl(v3, 21), v3 ^= v0;
    v2 += v1, v1 = std::rotl(v1, 17), v1 ^= v2, v2 = std::rotl(v2, 32);
  }
  void absorb(std::uint64_t word) {
    v3 ^= word;
    round(), round();
    v0 ^= word;
  }
  std::uint64_t finish() {
    round(), round(), round(), round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

KeyedHash keyed_hash(const HashKey& key, std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little, "words are read as they lie");
  State state{key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du ^ 0xeeu, key[0] ^ 0x6c7967656e657261u,
              key[1] ^ 0x7465646279746573u};
  std::size_t at = 0;
  std::uint64_t word = 0;
  for (; at + sizeof(word) <= bytes.size(); at += sizeof(word)) {
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    state.absorb(word);
  }
  word = 0;
  if (at < bytes.size()) std::memcpy(&word, bytes.data() + at, bytes.size() - at);
  state.absorb(word | static_cast<std::uint64_t>(bytes.size()) << 56);
  state.v2 ^= 0xee;
  const std::uint64_t low = state.finish();
  state.v1 ^= 0xdd;
  return {low, state.finish()};
}

}  // namespace fermata

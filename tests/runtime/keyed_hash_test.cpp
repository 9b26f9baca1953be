// The published values of SipHash-2-4-128, and that no byte is left out.
#include "runtime/keyed_hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <set>
#include <string>

namespace fermata {
namespace {

/// As the vectors are written: the bytes of the result in order.
std::string bytes_of(const KeyedHash& hash) {
  std::string text;
  for (const std::uint64_t word : hash)
    for (int i = 0; i < 8; ++i) {
      constexpr const char* kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned>(word >> (8 * i) & 0xff);
      text += kDigits[byte >> 4], text += kDigits[byte & 15];
    }
  return text;
}

// vectors.h of the reference implementation: key 00 01 .. 0f, input 00 01 .. of each length.
TEST(KeyedHash, GivesThePublishedValues) {
  const HashKey key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  EXPECT_EQ(bytes_of(keyed_hash(key, "")), "a3817f04ba25a8e66df67214c7550293");
  EXPECT_EQ(bytes_of(keyed_hash(key, std::string("\0", 1))), "da87c1d86b99af44347659119b22fc45");
  EXPECT_EQ(bytes_of(keyed_hash(key, std::string("\0\1", 2))), "8177228da4a45dc7fca38bdef60affe4");
}

TEST(KeyedHash, DependsOnEveryBitOfKeyAndInput) {
  const std::string input(100, 'a');
  std::set<KeyedHash> seen{keyed_hash({1, 2}, input)};
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_TRUE(seen.insert(keyed_hash({1 ^ std::uint64_t{1} << bit, 2}, input)).second);
    EXPECT_TRUE(seen.insert(keyed_hash({1, 2 ^ std::uint64_t{1} << bit}, input)).second);
  }
  for (std::size_t at = 0; at < input.size(); ++at) {
    std::string changed = input;
    changed[at] = 'b';
    EXPECT_TRUE(seen.insert(keyed_hash({1, 2}, changed)).second) << at;
    EXPECT_TRUE(seen.insert(keyed_hash({1, 2}, input.substr(0, at))).second) << at;
  }
}

}  // namespace
}  // namespace fermata

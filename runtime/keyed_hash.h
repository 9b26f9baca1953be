// A keyed hash, which cannot be computed without the key: SipHash-2-4 with 128 bits (Aumasson and Bernstein, "SipHash:
// a fast short-input PRF", 2012; the reference implementation has the longer output).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fermata {

using HashKey = std::array<std::uint64_t, 2>;
using KeyedHash = std::array<std::uint64_t, 2>;

KeyedHash keyed_hash(const HashKey& key, std::string_view bytes);

}  // namespace fermata

// What a call does besides giving its results.
#pragma once

#include <cstdint>
#include <string_view>

namespace fermata {

enum class Effect : std::uint8_t {
  pure,    // nothing: calls may be merged, dropped and made again
  random,  // draws numbers: no two calls are one; made again, a call draws the same numbers
  effect,  // something that others see: every call is made once, in the order of the program
};
std::string_view name(Effect effect);

}  // namespace fermata

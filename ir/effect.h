// Side effects of calls.
#pragma once

#include <cstdint>
#include <string_view>

namespace fermata {

enum class Effect : std::uint8_t {
  pure,    // none: calls may be merged, removed and repeated
  random,  // draws numbers: calls cannot be merged; a repeated call draws the same numbers
  effect,  // externally visible: every call is executed once, in program order
};
std::string_view name(Effect effect);

}  // namespace fermata

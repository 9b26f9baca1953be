// JSON, as events: what a reader keeps is its own choice, so a file costs no more memory than that.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace fermata {

struct JsonEvent {
  enum class Kind : std::uint8_t {
    begin_object,
    key,
    end_object,
    begin_array,
    end_array,
    text,
    natural,  // an integer that is not negative
    other,    // any other number, true, false or null
  };
  Kind kind;
  std::string_view text = {};  // of keys and texts
  std::uint64_t natural = 0;
};

/// Calls `handle` for every part of a JSON text in order, duplicate keys included; it may throw. Gives what is wrong
/// with the text, or nothing.
///
/// Errors   UnsupportedError FM2024 in a build without nlohmann-json.
std::string read_json(std::string_view text, const std::function<void(const JsonEvent&)>& handle);

/// A string as JSON, in quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view text);

}  // namespace fermata

// The text of an error, for tests that compare all of it.
#pragma once

#include <algorithm>
#include <charconv>
#include <exception>
#include <source_location>
#include <string>

#include "ir/error.h"

namespace fermata::testing {

/// The message of the error of class E that a call throws. The call stands on the line of this one or the next; that
/// line number becomes "HERE", file and all.
template <class E, class F> std::string message(F&& call, std::source_location here = std::source_location::current()) {
  std::string text = "no error";
  try {
    call();
  } catch (const E& error) {
    text = error.what();
    if (!text.starts_with("FM" + std::to_string(error.code()))) return "a message without its code: " + text;
  } catch (const std::exception& error) { return std::string("an error of another class: ") + error.what(); }
  const std::string place = short_location(here), file = place.substr(0, place.rfind(':') + 1);
  const std::size_t at = text.find(file);
  if (at == std::string::npos) return text;
  const char* const begin = text.data() + at + file.size();
  std::uint32_t line = 0;
  const char* const end = std::from_chars(begin, text.data() + text.size(), line).ptr;
  if (line < here.line() || line > here.line() + 1) return text;
  return text.replace(at, static_cast<std::size_t>(end - (text.data() + at)), "HERE");
}

/// The same without the line that says where.
template <class E, class F> std::string message_without_place(F&& call) {
  try {
    call();
  } catch (const E& error) {
    const std::string text = error.what();
    const std::size_t at = text.find("\n  at   ");
    return at == text.npos ? text : text.substr(0, at) + text.substr(std::min(text.size(), text.find('\n', at + 1)));
  }
  return "no error";
}

}  // namespace fermata::testing

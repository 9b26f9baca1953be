// Writing JSON: commas and escapes are seen to.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

namespace fermata {

class JsonText {
 public:
  JsonText& begin_object() { return open('{'); }
  JsonText& end_object() { return close('}'); }
  JsonText& begin_array() { return open('['); }
  JsonText& end_array() { return close(']'); }
  JsonText& key(std::string_view name) {
    value(name);
    text_ += ':', comma_ = false;
    return *this;
  }
  JsonText& value(std::string_view text) {
    separate();
    text_ += '"';
    for (const char c : text) add_character(c);
    text_ += '"';
    return *this;
  }
  JsonText& value(const char* text) { return value(std::string_view(text)); }
  JsonText& value(std::same_as<bool> auto truth) {
    separate();
    text_ += truth ? "true" : "false";
    return *this;
  }
  JsonText& value(std::integral auto number) requires(!std::same_as<decltype(number), bool>) {
    separate();
    fmt::format_to(std::back_inserter(text_), "{}", number);
    return *this;
  }
  /// Three digits after the point: nanoseconds of microseconds. JSON has no infinities.
  JsonText& value(double number) {
    separate();
    if (number - number != 0) number = 0;
    fmt::format_to(std::back_inserter(text_), "{:.3f}", number);
    return *this;
  }
  template <class T> JsonText& member(std::string_view name, const T& v) { return key(name).value(v); }
  JsonText& new_line() {
    separate();
    text_ += '\n', comma_ = false;
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  JsonText& open(char bracket) {
    separate();
    text_ += bracket, comma_ = false;
    return *this;
  }
  JsonText& close(char bracket) {
    text_ += bracket, comma_ = true;
    return *this;
  }
  void separate() {
    if (comma_) text_ += ',';
    comma_ = true;
  }
  void add_character(char c) {
    switch (c) {
      case '"': text_ += "\\\""; return;
      case '\\': text_ += "\\\\"; return;
      case '\n': text_ += "\\n"; return;
      case '<': text_ += "\\u003c"; return;  // so that the text may stand in HTML
      default: break;
    }
    if (static_cast<unsigned char>(c) < 0x20)
      fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      text_ += c;
  }

  std::string text_;
  bool comma_ = false;
};

}  // namespace fermata

// See json.h. The only file of the library that includes the JSON library.
#include "frontend/tools/io/json.h"

#include "ir/error.h"

#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>

namespace fermata {
namespace {

/// Not recursive, whatever is nested in what.
class Events : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Events(const std::function<void(const JsonEvent&)>& handle) : handle_(handle) {}
  std::string error;

  bool null() override { return say({JsonEvent::Kind::other}); }
  bool boolean(bool) override { return say({JsonEvent::Kind::other}); }
  bool number_integer(number_integer_t) override { return say({JsonEvent::Kind::other}); }
  bool number_unsigned(number_unsigned_t value) override { return say({JsonEvent::Kind::natural, {}, value}); }
  bool number_float(number_float_t, const string_t&) override { return say({JsonEvent::Kind::other}); }
  bool string(string_t& value) override { return say({JsonEvent::Kind::text, value}); }
  bool binary(binary_t&) override { return say({JsonEvent::Kind::other}); }
  bool start_object(std::size_t) override { return say({JsonEvent::Kind::begin_object}); }
  bool key(string_t& value) override { return say({JsonEvent::Kind::key, value}); }
  bool end_object() override { return say({JsonEvent::Kind::end_object}); }
  bool start_array(std::size_t) override { return say({JsonEvent::Kind::begin_array}); }
  bool end_array() override { return say({JsonEvent::Kind::end_array}); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error = "is not valid JSON at byte " + std::to_string(position);
    return false;
  }

 private:
  bool say(const JsonEvent& event) {
    handle_(event);
    return true;
  }
  const std::function<void(const JsonEvent&)>& handle_;
};

}  // namespace

std::string read_json(std::string_view text, const std::function<void(const JsonEvent&)>& handle) {
  Events events(handle);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return events.error;
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace fermata

#else

namespace fermata {
namespace {
[[noreturn]] void throw_without() {
  throw UnsupportedError(2024,
                         format_error(2024, "UnsupportedError", "this engine was built without <nlohmann/json.hpp>", {},
                                      std::source_location::current(), "install nlohmann-json3-dev and rebuild"));
}
}  // namespace
std::string read_json(std::string_view, const std::function<void(const JsonEvent&)>&) { throw_without(); }
std::string json_text(std::string_view) { throw_without(); }
}  // namespace fermata
#endif

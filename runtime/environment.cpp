// See environment.h.
#include "runtime/environment.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>

namespace fermata {
namespace {

std::optional<std::uint64_t> whole_number(std::string_view text) {
  const char* const last = text.data() + text.size();
  std::uint64_t number = 0;
  if (const auto [end, error] = std::from_chars(text.data(), last, number); end == last && error == std::errc())
    return number;
  double wide = 0;
  const auto [end, error] = std::from_chars(text.data(), last, wide);
  if (end != last || error != std::errc() || !(wide >= 0 && wide < 0x1p64) || wide != std::floor(wide))
    return std::nullopt;
  return static_cast<std::uint64_t>(wide);
}

}  // namespace

const char* environment_variable(const char* name) { return secure_getenv(name); }

std::uint64_t environment_number(const char* name, std::uint64_t otherwise, std::uint64_t least) {
  const char* const text = environment_variable(name);
  if (text == nullptr || *text == '\0') return otherwise;
  if (const auto number = whole_number(text); number && *number >= least) return *number;
  std::fprintf(stderr, "fermata warning: ignoring %s=%s: it is not a whole number of at least %llu\n", name, text,
               static_cast<unsigned long long>(least));
  return otherwise;
}

}  // namespace fermata

// See progress.h.
#include "frontend/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace fermata::cli {

Progress::Progress(std::string what, std::size_t count)
    : what_(std::move(what)), count_(count), is_terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (is_terminal_ && shown_ != Clock::time_point()) fmt::print(stderr, "\r\x1b[K");
}

std::string Progress::text(std::string_view what, std::size_t done, std::size_t count, std::string_view part,
                           double seconds) {
  std::string text = fmt::format("{}: {}{}", what, done, count != 0 ? fmt::format(" of {}", count) : "");
  if (!part.empty()) text += fmt::format(" ({})", part);
  if (count == 0 || done == 0 || done > count) return text;
  return text + fmt::format(", {:.0f} s left", seconds / static_cast<double>(done) * static_cast<double>(count - done));
}

void Progress::step(std::size_t done, std::string_view part) {
  constexpr auto kSilent = std::chrono::seconds(2);
  const auto interval = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10'000);
  const Clock::time_point now = Clock::now();
  if (now - start_ < kSilent || now - shown_ < interval) return;
  shown_ = now;
  const std::string line = text(what_, done, count_, part, std::chrono::duration<double>(now - start_).count());
  if (is_terminal_)
    fmt::print(stderr, "\r\x1b[K{}", line);
  else
    fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

}  // namespace fermata::cli

// How far a long command is: on a terminal one line that is written over, elsewhere a line every ten seconds. Nothing
// is shown in the first two seconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace fermata::cli {

class Progress {
 public:
  /// `what` is done in `count` parts; 0 where that is not known.
  explicit Progress(std::string what, std::size_t count = 0);
  /// Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `done` parts are finished; the one that begins now is called `part`.
  void step(std::size_t done, std::string_view part = {});
  /// "warming the cache: 12 of 40 (matmul), 8 s left".
  static std::string text(std::string_view what, std::size_t done, std::size_t count, std::string_view part,
                          double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  const std::string what_;
  const std::size_t count_;
  const bool is_terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_{};
};

}  // namespace fermata::cli

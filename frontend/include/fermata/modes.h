// When calls run. Each thread has its own mode, and starts in compiled mode unless FERMATA_MODE=eager is set in the
// environment when the process starts.
#pragma once

#include <cstdint>

namespace fermata {

enum class Mode : std::uint8_t {
  eager,     // op by op, at once
  compiled,  // recorded, and played as few compiled kernels when a value is needed
};

/// The mode of this thread.
Mode mode();
void set_mode(Mode mode);

/// A mode for a scope; guards nest, and restore on exceptions.
class ModeGuard {
 public:
  explicit ModeGuard(Mode mode) : saved_(fermata::mode()) { set_mode(mode); }
  ~ModeGuard() { set_mode(saved_); }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  Mode saved_;
};

}  // namespace fermata

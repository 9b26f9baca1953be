// Execution modes. Each thread has its own mode. It starts in compiled mode unless FERMATA_MODE=eager is set in the
// environment at process start.
#pragma once

#include <cstdint>

namespace fermata {

enum class Mode : std::uint8_t {
  eager,     // each call runs immediately
  compiled,  // calls are recorded, and run as few compiled kernels when a value is needed
};

/// The mode of this thread.
Mode mode();
void set_mode(Mode mode);

/// Sets the mode for a scope; guards nest, and restore on exceptions.
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

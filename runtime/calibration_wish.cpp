// See calibration_wish.h.
#include "runtime/calibration_wish.h"

#include <atomic>
#include <string_view>

#include "runtime/environment.h"

namespace fermata {

namespace {

std::atomic<CalibrationWish>& current() {
  static std::atomic<CalibrationWish> wish{[] {
    const char* const value = environment_variable("FERMATA_CALIBRATE");
    const std::string_view text = value == nullptr ? "" : value;
    return text == "0" ? CalibrationWish::never : text == "1" ? CalibrationWish::always : CalibrationWish::if_unknown;
  }()};
  return wish;
}

}  // namespace

CalibrationWish calibration_wish() { return current().load(std::memory_order_relaxed); }
CalibrationWish set_calibration_wish(CalibrationWish wish) { return current().exchange(wish); }

}  // namespace fermata

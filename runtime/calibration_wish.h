// FERMATA_CALIBRATE: whether this machine may be measured.
#pragma once

#include <cstdint>

namespace fermata {

enum class CalibrationWish : std::uint8_t {
  never,       // 0: shipped figures and predictions only, so that bits of products are the same in every process
  if_unknown,  // not set: figures are measured on processors without shipped ones
  always,      // 1: and on all others
};
CalibrationWish calibration_wish();
/// For tests. Returns the one before.
CalibrationWish set_calibration_wish(CalibrationWish wish);

}  // namespace fermata

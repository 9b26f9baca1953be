// Figures that costs are made of, as the processor at hand gives them: what `fermata doctor --calibrate` shows.
#pragma once

#include <string>
#include <vector>

namespace fermata {

struct CalibratedFigure {
  std::string name;
  double shipped, used;
};
struct Calibration {
  std::string source;  // "shipped", "measured now", ...
  std::vector<CalibratedFigure> figures;
};

/// What the backend of the CPU offers: its figures, measured anew if asked for.
void set_calibration(Calibration (*calibration)(bool measure));
/// Without figures where there is no such backend.
Calibration calibration(bool measure);

}  // namespace fermata

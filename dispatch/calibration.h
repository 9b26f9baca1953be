// Machine parameters of the cost model, as shown by `fermata doctor --calibrate`.
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

/// Installs the CPU backend's function, which returns the parameters and measures them if `measure`.
void set_calibration(Calibration (*calibration)(bool measure));
/// Returns no figures if the function is not installed.
Calibration calibration(bool measure);

}  // namespace fermata

// See calibration.h.
#include "dispatch/calibration.h"

namespace fermata {
namespace {

using Function = Calibration (*)(bool measure);
constinit Function registered = nullptr;

}  // namespace

void set_calibration(Calibration (*calibration)(bool measure)) { registered = calibration; }

Calibration calibration(bool measure) { return registered == nullptr ? Calibration{"none", {}} : registered(measure); }

}  // namespace fermata

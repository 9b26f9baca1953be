// What one run of a bound step moves and does, for profiles.
#pragma once

#include "ir/dtype.h"

namespace fermata {

struct StepWork {
  double bytes = 0, operations = 0;
  double strided_bytes = 0;  // of those read across the order in which they lie
  DType dtype = DType::f32;  // of what is multiplied, or stored
};

}  // namespace fermata

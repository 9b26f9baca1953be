// Bytes moved and operations executed by one run of a bound step, for profiles.
#pragma once

#include "ir/dtype.h"

namespace fermata {

struct StepWork {
  double bytes = 0, operations = 0;
  double strided_bytes = 0;  // the part of the bytes read against the memory order
  DType dtype = DType::f32;  // of the factors, or of the stored values
};

}  // namespace fermata

// Error bounds of ops relative to exact arithmetic: the rows of ir/ops/accuracy.def.
#pragma once

#include <string_view>

#include "ir/op.h"

namespace fermata {

struct Accuracy {
  // In ulp of the exact result. 0.5 means correctly rounded; unused if `text` is set.
  double f32 = 0.5, f64 = 0.5;
  double measured_f32 = 0;  // the largest error found; 0 if not measured
  std::string_view text;    // bounds that ulp cannot express
  bool has_row = false;
};
/// For built-in ops.
const Accuracy& accuracy(Op op);

/// Of complex operands: the distance from the exact result, in ulp of its magnitude.
struct ComplexAccuracy {
  double c64 = 0, c128 = 0, measured_c64 = 0;
  std::string_view growth;  // by what the bounds grow; empty for most ops
};
/// Null where parts of results are correctly rounded, or moved, and for ops that are composed of others.
const ComplexAccuracy* complex_accuracy(Op op);

}  // namespace fermata

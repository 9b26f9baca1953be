// How far results may be from what exact arithmetic gives, by op: the rows of ir/ops/accuracy.def.
#pragma once

#include <string_view>

#include "ir/op.h"

namespace fermata {

struct Accuracy {
  // In units of the last place of the exact result. 0.5 is the nearest number; unused where there is a text.
  double f32 = 0.5, f64 = 0.5;
  double measured_f32 = 0;  // the largest that was found; 0 where nobody looked
  std::string_view text;    // where ulp say nothing
  bool has_row = false;
};
/// For built-in ops.
const Accuracy& accuracy(Op op);

}  // namespace fermata

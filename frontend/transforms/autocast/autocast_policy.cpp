// The autocast policy of every op, as the op table says it (ir/op_traits.h).
#include "fermata/autocast.h"

#include "ir/op_traits.h"

namespace fermata {

AutocastPolicy autocast_policy(Op op) {
  using enum AutocastPolicy;
  switch (traits(op).precision) {
    case OperandPrecision::as_given: return untouched;
    case OperandPrecision::lower: return lower;
    case OperandPrecision::f32: return f32;
    case OperandPrecision::widest: return widest;
  }
  return untouched;
}

}  // namespace fermata

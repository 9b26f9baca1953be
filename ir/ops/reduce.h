// The attributes that all reductions share. Their rows are in ir/ops/reduce.def.
#pragma once

#include "ir/op_fields.h"

namespace fermata::ops {

struct Reduction {
  Structure<Axes> axes;
  Structure<bool> keepdims;

  bool is_reduced(unsigned axis) const { return (axes.value >> axis & 1) != 0; }
};

}  // namespace fermata::ops

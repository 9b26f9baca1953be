// What all losses end with: the losses of elements reduced.
#pragma once

#include "fermata/losses.h"
#include "frontend/ops/neural/floating_scope.h"

namespace fermata {

class LossScope : public FloatingScope {
 public:
  using FloatingScope::FloatingScope;
  /// The losses of elements reduced, in the dtype of the operands.
  Tensor reduced(const vjp::VjpTensor& loss, LossReduction reduction) const;
};

}  // namespace fermata

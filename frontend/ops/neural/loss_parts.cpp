// See loss_parts.h.
#include "frontend/ops/neural/loss_parts.h"

#include "fermata/reductions.h"

namespace fermata {

Tensor LossScope::reduced(const vjp::VjpTensor& loss, LossReduction reduction) const {
  const Tensor& x = loss.tensor();
  switch (reduction) {
    case LossReduction::none: return result(loss);
    case LossReduction::mean: return result(mean(x, {}, false, where()));
    case LossReduction::sum: return result(sum(x, {}, false, where()));
    case LossReduction::batch_mean: break;
  }
  if (x.rank() == 0) fail_parameter(function(), "batch_mean of a 0-d tensor", where());
  return result(vjp::VjpTensor(sum(x, {}, false, where())) / static_cast<double>(x.size(0)));
}

}  // namespace fermata

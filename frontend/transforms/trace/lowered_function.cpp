// See lowered_function.h.
#include "frontend/transforms/trace/lowered_function.h"

#include <memory>

#include "frontend/transforms/autograd/vjp_tensor.h"

namespace fermata {

Tensor with_batch_below(const Tensor& t, const VmapLevel& level) {
  const Tensor own = at_level(t, level);
  const BatchedTensor& b = batched_tensor(own);
  if (b.batched) return b.physical;
  Shape all{level.size};
  for (const std::int64_t size : b.physical.shape()) all.push_back(size);
  return vjp::broadcast_to(b.physical, all).tensor();
}

TensorFunction below_level(TensorFunction f, std::vector<bool> batched) {
  const auto saved = std::make_shared<SavedFrame>(vmap_frame);
  return [f = std::move(f), batched = std::move(batched), saved](std::span<const Tensor> below) {
    const VmapLevel level = saved->frame()->level;
    std::vector<Tensor> inside;
    for (std::size_t i = 0; i < below.size(); ++i)
      inside.push_back(make_batched(same_value(below[i]), level, batched[i]));
    {
      const InsideLevel here(saved->frame());
      inside = f(inside);
    }
    for (Tensor& t : inside) t = with_batch_below(t, level);
    return inside;
  };
}

BelowWrappers::BelowWrappers(std::span<const Tensor> arguments, const VmapLevel& level) {
  for (const Tensor& t : arguments) {
    const bool own = depth_of(t) == level.depth;
    tensors.push_back(own ? batched_tensor(t).physical : t);
    batched.push_back(own && batched_tensor(t).batched);
  }
}

bool differs_in_batch(const Tensor& t) {
  for (Tensor below = t; is_batched(below);) {
    const BatchedTensor& b = batched_tensor(below);
    if (b.batched) return true;
    below = Tensor(b.physical);
  }
  return false;
}

}  // namespace fermata

// A function inside a level of vmap as one of the tensors below it.
#pragma once

#include <span>
#include <vector>

#include "fermata/tensor_tree.h"
#include "frontend/transforms/vmap/batched.h"

namespace fermata {

/// Tensors of any level not further in than `level` as ordinary ones with the batch in front, all of them.
Tensor with_batch_below(const Tensor& t, const VmapLevel& level);

/// Runs f inside the innermost level on wrappers around its arguments, which have the batch in front where `batched`
/// says so; results have it in front. May be called when that vmap is over: tensors of the level that f mentions are
/// usable in it.
TensorFunction below_level(TensorFunction f, std::vector<bool> batched);

/// Arguments of a call inside a level as those of the call below it.
struct BelowWrappers {
  std::vector<Tensor> tensors;
  std::vector<bool> batched;
  BelowWrappers(std::span<const Tensor> arguments, const VmapLevel& level);
};
/// Has it, at some level, a batch?
bool differs_in_batch(const Tensor& t);

}  // namespace fermata

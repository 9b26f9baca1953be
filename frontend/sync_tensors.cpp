// See fermata/sync.h.
#include "fermata/sync.h"

#include <vector>

#include "frontend/calls.h"
#include "frontend/sync.h"

namespace fermata {

void sync(std::span<const Tensor> tensors, Location where) {
  std::vector<Node*> pending;
  for (const Tensor& t : tensors) {
    require_defined("sync", t, where);
    if (Node* n = t.node(); n->pending()) pending.push_back(n);
  }
  if (!pending.empty()) sync_nodes(pending, "sync()", where);
}

void sync(std::initializer_list<Tensor> tensors, Location where) {
  sync(std::span<const Tensor>(std::data(tensors), tensors.size()), where);
}

}  // namespace fermata

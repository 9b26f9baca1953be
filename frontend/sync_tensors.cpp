// See fermata/sync.h.
#include "fermata/sync.h"

#include <vector>

#include "dispatch/backend.h"
#include "frontend/calls.h"
#include "frontend/sync.h"

namespace fermata {

namespace {

void start(std::span<const Tensor> tensors, const char* function, const char* reason, Location where) {
  std::vector<Node*> pending;
  for (const Tensor& t : tensors) {
    require_defined(function, t, where);
    if (Node* n = t.node(); n->pending()) pending.push_back(n);
  }
  if (!pending.empty()) sync_nodes(pending, reason, where);
}

}  // namespace

void sync(std::span<const Tensor> tensors, Location where) {
  start(tensors, "sync", "sync()", where);
  // Other devices are waited for, each once.
  DispatchKeySet waited;
  for (const Tensor& t : tensors) {
    const BackendKey key = t.node()->backend;
    if (key == BackendKey::cpu || waited.has(key)) continue;
    waited = waited | key;
    if (Backend* const device = backend(key)) device->synchronise();
  }
}

void flush(std::span<const Tensor> tensors, Location where) { start(tensors, "flush", "flush()", where); }
void flush(std::initializer_list<Tensor> tensors, Location where) {
  flush(std::span<const Tensor>(std::data(tensors), tensors.size()), where);
}

void sync(std::initializer_list<Tensor> tensors, Location where) {
  sync(std::span<const Tensor>(std::data(tensors), tensors.size()), where);
}

}  // namespace fermata

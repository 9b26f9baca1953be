// See fermata/sync.h.
#include "fermata/sync.h"

#include <array>
#include <string_view>
#include <vector>

#include "dispatch/backend.h"
#include "frontend/engine/sync.h"
#include "frontend/ops/calls.h"

namespace fermata {

namespace {

void start(std::span<const Tensor> tensors, std::string_view function, const char* reason, Location where) {
  std::array<Node*, 16> few;
  std::vector<Node*> many(tensors.size() > few.size() ? tensors.size() : 0);
  Node** const pending = many.empty() ? few.data() : many.data();
  std::size_t count = 0;
  for (const Tensor& t : tensors) {
    if (!t.defined()) [[unlikely]]
      require_defined(function, t, where);
    if (Node* n = t.node(); n->pending()) pending[count++] = n;
  }
  if (count != 0) sync_nodes({pending, count}, reason, where);
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
    if (Backend* const device = backend(key)) device->synchronize();
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

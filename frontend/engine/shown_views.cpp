// See shown_views.h.
#include "frontend/engine/shown_views.h"

#include <utility>

namespace fermata {

void show_views(const Walk& walk, ViewsOf which, std::vector<Node*>& published) {
  for (const Walk::ShownView& v : walk.views) {
    const Walk::Entry& source = walk.order[v.source];
    if ((source.storage != nullptr) != (which == ViewsOf::leaves)) continue;
    Node* const n = walk.order[v.view].node;
    Storage* const shown = source.node->storage.load();
    if (v.offset != 0 || !is_dense(n->sizes(), v.strides))
      n->extra->strides = v.strides, n->extra->offset = v.offset, n->extra->strided = true;
    shown->retain();
    StoragePtr reference(shown);
    Storage* pending = nullptr;
    if (!n->storage.compare_exchange_strong(pending, shown)) continue;  // another thread was first
    static_cast<void>(reference.release());
    published.push_back(n);
  }
}

}  // namespace fermata

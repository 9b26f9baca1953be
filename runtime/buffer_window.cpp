// See buffer_window.h.
#include "runtime/buffer_window.h"

namespace fermata {
namespace {

void release_shown(Storage* window) { static_cast<Storage*>(window->owner)->release(); }

}  // namespace

StoragePtr window_on(StoragePtr buffer) {
  Storage* const shown = buffer.release();
  StoragePtr window(Storage::adopt(shown->data, shown->bytes, &release_shown, shown));
  window->show_to_caller();
  return window;
}

bool is_window(const Storage& buffer) { return buffer.give_back == &release_shown; }

void move_window(Storage& window, StoragePtr to) {
  const StoragePtr before(static_cast<Storage*>(window.owner));
  window.data = to->data;
  window.owner = to.release();
}

}  // namespace fermata

// Windows: buffers in the place of one whose address was handed out.
//
// Writes to a pinned tensor land in its buffer, while values that were recorded before keep what they saw. So values
// refer to a window on the buffer and never to the buffer itself. Before elements change, the window moves to a copy of
// them, and takes along all that refers to it: the value, views of it, arguments of recorded functions.
#pragma once

#include "runtime/storage.h"

namespace fermata {

/// A window on the whole of a buffer, which it keeps.
StoragePtr window_on(StoragePtr buffer);
/// Whether a buffer is a window: it moves when a pinned tensor is written.
bool is_window(const Storage& buffer);
/// From now on the window shows another buffer of the same size.
void move_window(Storage& window, StoragePtr to);

}  // namespace fermata

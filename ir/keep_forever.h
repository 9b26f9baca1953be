// Objects that live as long as the process, because readers may still use them after they are replaced or removed. They
// stay reachable, so leak checkers do not report them.
#pragma once

#include <deque>
#include <mutex>
#include <utility>

namespace fermata {

template <class T, class... Arguments> T* keep_forever(Arguments&&... arguments) {
  struct All {
    std::mutex mutex;
    std::deque<T> objects;
  };
  static auto* const all = new All;  // outlives every static tensor
  const std::lock_guard lock(all->mutex);
  return &all->objects.emplace_back(std::forward<Arguments>(arguments)...);
}

}  // namespace fermata

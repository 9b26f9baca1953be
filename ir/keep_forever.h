// Objects that live as long as the process, since somebody may be reading them when they are replaced or taken away.
// They stay reachable, so that a leak checker reports none of them.
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

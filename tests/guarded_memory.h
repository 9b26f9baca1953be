// Memory whose ends can be found.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <span>

namespace fermata {

/// Memory between two pages that cannot be read.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), bytes_((bytes + page_ - 1) / page_ * page_) {
    void* const mapped = mmap(nullptr, bytes_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(mapped) + page_;
    if (mprotect(begin_, bytes_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  }
  ~GuardedMemory() { munmap(begin_ - page_, bytes_ + 2 * page_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  /// The first or last elements.
  template <class T> std::span<T> elements(std::size_t count, bool last) {
    std::byte* const at = last ? begin_ + bytes_ - count * sizeof(T) : begin_;
    return {reinterpret_cast<T*>(at), count};
  }

 private:
  const std::size_t page_, bytes_;
  std::byte* begin_;
};

}  // namespace fermata

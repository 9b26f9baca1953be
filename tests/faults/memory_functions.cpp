// operator new and malloc() with points that may fail. A sanitizer has its own malloc(), which stays.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "tests/faults/count.h"
#include "tests/faults/faults.h"
#include "tests/faults/real_function.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FERMATA_REPLACE_MALLOC 0
#else
#define FERMATA_REPLACE_MALLOC 1
#endif

using fermata::FaultKind;
using fermata::faults::fails;

namespace {

constinit std::atomic<std::int64_t> blocks{0};

#if FERMATA_REPLACE_MALLOC
extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* __libc_calloc(std::size_t count, std::size_t bytes);
extern "C" void* __libc_realloc(void* block, std::size_t bytes);
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void* take(std::size_t bytes) { return __libc_malloc(bytes); }
void* take(std::size_t bytes, std::size_t alignment) { return __libc_memalign(alignment, bytes); }
#else
void* take(std::size_t bytes) { return std::malloc(bytes); }
void* take(std::size_t bytes, std::size_t alignment) {
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
#endif

template <class... Alignment> void* new_or_null(std::size_t bytes, Alignment... alignment) noexcept {
  void* const block =
      fails(FaultKind::allocation) ? nullptr : take(bytes == 0 ? 1 : bytes, static_cast<std::size_t>(alignment)...);
  if (block != nullptr) blocks.fetch_add(1, std::memory_order_relaxed);
  return block;
}
void* or_throw(void* block) {
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void give_back(void* block) noexcept {
  if (block == nullptr) return;
  blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(block);
}

}  // namespace

std::int64_t fermata::faults::live_blocks() { return blocks.load(); }

void* operator new(std::size_t bytes) { return or_throw(new_or_null(bytes)); }
void* operator new[](std::size_t bytes) { return or_throw(new_or_null(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t a) { return or_throw(new_or_null(bytes, a)); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return or_throw(new_or_null(bytes, a)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return new_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return new_or_null(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return new_or_null(bytes, a);
}
void* operator new[](std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return new_or_null(bytes, a);
}
void operator delete(void* block) noexcept { give_back(block); }
void operator delete[](void* block) noexcept { give_back(block); }
void operator delete(void* block, std::size_t) noexcept { give_back(block); }
void operator delete[](void* block, std::size_t) noexcept { give_back(block); }
void operator delete(void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete[](void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { give_back(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { give_back(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept { give_back(block); }

#if FERMATA_REPLACE_MALLOC
static bool is_of_c_library(const void* address) {
  if (!fermata::faults::is_armed()) return false;
  Dl_info caller{}, library{};
  return dladdr(address, &caller) != 0 && dladdr(reinterpret_cast<const void*>(&std::abort), &library) != 0 &&
         caller.dli_fbase == library.dli_fbase;
}

extern "C" {
void* malloc(std::size_t bytes) {
  if (fails(FaultKind::allocation)) return errno = ENOMEM, nullptr;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  // The C library ends the process where it cannot note the destructor of a thread-local variable.
  if (!is_of_c_library(__builtin_return_address(0)) && fails(FaultKind::allocation)) return errno = ENOMEM, nullptr;
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  if (bytes != 0 && fails(FaultKind::allocation)) return errno = ENOMEM, nullptr;
  return __libc_realloc(block, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (fails(FaultKind::allocation)) return errno = ENOMEM, nullptr;
  return __libc_memalign(alignment, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) { return aligned_alloc(alignment, bytes); }
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  if (fails(FaultKind::allocation)) return ENOMEM;
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
}
#endif

extern "C" void* mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  static const auto real = fermata::faults::real_function<decltype(&mmap)>("mmap");
  if (fails((flags & MAP_ANONYMOUS) != 0 ? FaultKind::allocation : FaultKind::file)) return errno = ENOMEM, MAP_FAILED;
  return real(at, bytes, protection, flags, file, offset);
}

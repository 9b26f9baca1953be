// See storage.h.
#include "runtime/storage.h"

#include <new>

#include "runtime/allocator.h"

namespace fermata {
namespace {

constexpr std::size_t kHeader = sizeof(Storage);
/// Blocks up to this size share one with their header; above, size classes are powers of two and a header on top would
/// double the block.
constexpr std::size_t kInline = 512;

void give_back_bytes(Storage* s) {
  release_bytes({s->data, s->bytes, static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(s->owner))});
}

}  // namespace

Storage* Storage::allocate(std::size_t bytes) {
  if (bytes <= kInline - kHeader) {
    const std::uint32_t c = BlockPool::class_of(kHeader + bytes);
    void* memory = BlockPool::allocate(c);
    return ::new (memory) Storage{.refs{1},
                                  .size_class = c,
                                  .data = static_cast<std::byte*>(memory) + kHeader,
                                  .bytes = bytes,
                                  .give_back = nullptr,
                                  .owner = nullptr};
  }
  const Allocation a = allocate_bytes(bytes);
  return adopt(a.data, a.bytes, &give_back_bytes, reinterpret_cast<void*>(std::uintptr_t{a.size_class}));
}

Storage* Storage::adopt(void* data, std::size_t bytes, void (*give_back)(Storage*), void* owner) {
  void* memory;
  try {
    memory = BlockPool::allocate(BlockPool::class_of(kHeader));
  } catch (...) {
    Storage lost{
        .refs{1}, .size_class = kNotPooled, .data = data, .bytes = bytes, .give_back = give_back, .owner = owner};
    give_back(&lost);
    throw;
  }
  return ::new (memory)
      Storage{.refs{1}, .size_class = kNotPooled, .data = data, .bytes = bytes, .give_back = give_back, .owner = owner};
}

Storage* Storage::nowhere() {
  static constinit Storage none{.refs{1},  // held for ever
                                .size_class = kNotPooled,
                                .data = nullptr,
                                .bytes = 0,
                                .give_back = nullptr,
                                .owner = nullptr};
  none.retain();
  return &none;
}

namespace {
/// More references than anybody gives back.
constexpr std::uint32_t kForEver = 1u << 31;
constinit Storage busy{kForEver, Storage::kNotPooled, nullptr, 0, nullptr, nullptr, {}};
constinit Storage lost{kForEver, Storage::kNotPooled, nullptr, 0, nullptr, nullptr, {}};
}  // namespace

Storage* Storage::overwrite_sentinel() { return busy.retain(), &busy; }
Storage* Storage::overwritten() { return lost.retain(), &lost; }
bool Storage::is_being_overwritten() const { return this == &busy; }
bool Storage::is_overwritten() const { return this == &lost; }

bool Storage::is_own() const { return size_class != kNotPooled || give_back == &give_back_bytes; }

void Storage::destroy() {
  forget_packed();
  std::uint32_t c = size_class;
  if (give_back != nullptr) give_back(this), c = BlockPool::class_of(kHeader);
  this->~Storage();
  BlockPool::release(this, c);
}

}  // namespace fermata

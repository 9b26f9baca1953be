// Storage: a reference-counted buffer.
//
// A small buffer follows its header in one pooled block; a large one comes from the caching allocator, aligned to
// 2 MiB. Buffers of other devices carry the function that gives them back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace fermata {

class PrepackedWeights;

/// Gives up `unit` references; true if they were the last. When nobody else can hold one, which is how most objects
/// end, a load replaces the locked instruction.
template <class T> bool drop_references(std::atomic<T>& refs, T unit) {
  return refs.load(std::memory_order_acquire) == unit || refs.fetch_sub(unit, std::memory_order_acq_rel) == unit;
}

struct alignas(64) Storage {
  std::atomic<std::uint32_t> refs;
  std::uint32_t size_class;  // of the block that holds header and data; kNotPooled for large buffers
  void* data;
  std::size_t bytes;
  void (*give_back)(Storage*);                     // null for pooled blocks
  void* owner;                                     // for give_back
  std::atomic<PrepackedWeights*> packed{nullptr};  // what kernels have made of it; see runtime/prepacked_weights.h

  static constexpr std::uint32_t kNotPooled = ~0u;
  /// A CPU buffer of at least `bytes` bytes, one reference held by the caller. OutOfMemoryError if there is none.
  static Storage* allocate(std::size_t bytes);
  /// Memory owned by somebody else; `release(owner)` runs when the last reference goes.
  static Storage* adopt(void* data, std::size_t bytes, void (*give_back)(Storage*), void* owner);
  /// The buffer of values that have a type and no data, one reference more: meta and wrapper tensors.
  static Storage* nowhere();
  /// Stand in for the buffer of a value while a run writes its result there, and after such a run has failed. Each call
  /// gives one reference more.
  static Storage* overwrite_sentinel();
  static Storage* overwritten();
  bool is_being_overwritten() const;
  bool is_overwritten() const;
  bool has_no_buffer() const { return data == nullptr && give_back == nullptr && size_class == kNotPooled; }
  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (drop_references(refs, 1u)) destroy();
  }
  /// Memory of this engine's own, not a caller's.
  bool is_own() const;
  /// Before something else is written over the elements: what was made of them is wrong then.
  void forget_packed() {
    if (packed.load(std::memory_order_acquire) != nullptr) [[unlikely]]
      drop_packed(nullptr);
  }
  /// From now on the elements may change unseen: nothing that is made of them is kept.
  void show_to_caller();
  bool unique() const { return refs.load(std::memory_order_acquire) == 1; }

 private:
  void destroy();
  void drop_packed(PrepackedWeights* now);
};

struct ReleaseStorage {
  void operator()(Storage* s) const { s->release(); }
};
using StoragePtr = std::unique_ptr<Storage, ReleaseStorage>;

}  // namespace fermata

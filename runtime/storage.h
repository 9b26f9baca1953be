// Storage: a reference-counted buffer.
//
// A small buffer follows its header in one pooled block; a large one comes from the caching allocator, aligned to 2
// MiB. Buffers of other devices carry the function that frees them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace fermata {

class PrepackedWeights;

/// Drops `unit` references; returns true if they were the last. If no other reference exists, as for most objects, a
/// load replaces the locked instruction.
template <class T> bool drop_references(std::atomic<T>& refs, T unit) {
  return refs.load(std::memory_order_acquire) == unit || refs.fetch_sub(unit, std::memory_order_acq_rel) == unit;
}

struct alignas(64) Storage {
  std::atomic<std::uint32_t> refs;
  std::uint32_t size_class;  // of the block with header and data; kNotPooled for large buffers
  void* data;
  std::size_t bytes;
  void (*give_back)(Storage*);                     // null for pooled blocks
  void* owner;                                     // for give_back
  std::atomic<PrepackedWeights*> packed{nullptr};  // packed copies made by kernels; see runtime/prepacked_weights.h

  static constexpr std::uint32_t kNotPooled = ~0u;
  /// Allocates a CPU buffer of at least `bytes` bytes; the caller holds one reference. Throws OutOfMemoryError on
  /// failure.
  static Storage* allocate(std::size_t bytes);
  /// Wraps external memory; `give_back` is called when the last reference is dropped.
  static Storage* adopt(void* data, std::size_t bytes, void (*give_back)(Storage*), void* owner);
  /// Returns the shared buffer of values with a type but no data (meta and wrapper tensors), with one more reference.
  static Storage* nowhere();
  /// Placeholders for the buffer of a value while a run overwrites it, and after such a run has failed. Each call adds
  /// one reference.
  static Storage* overwrite_sentinel();
  static Storage* overwritten();
  bool is_being_overwritten() const;
  bool is_overwritten() const;
  bool has_no_buffer() const { return data == nullptr && give_back == nullptr && size_class == kNotPooled; }
  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (drop_references(refs, 1u)) destroy();
  }
  /// Whether the memory is owned by this engine, not by a caller.
  bool is_own() const;
  /// Must be called before the elements are overwritten: drops packed copies, which would be stale.
  void forget_packed() {
    if (packed.load(std::memory_order_acquire) != nullptr) [[unlikely]]
      drop_packed(nullptr);
  }
  /// Marks the elements as mutable from outside the engine: no packed copies are kept from now on.
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

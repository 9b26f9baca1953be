// Packed copies of operands in the layout that kernels read (panels of a matrix, reordered filters), cached with the
// buffer of an operand that is used repeatedly: a constant, such as the weights of a model
// (docs/adr/019-packed-copies.md).
//
// A buffer's elements do not change during its lifetime, so a copy is valid that long. Copies are freed with their
// buffer, before results are written over it, and when memory is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/function_ref.h"
#include "runtime/storage.h"

namespace fermata {

/// Identifies a copy of a buffer. Copies with equal keys have the same bytes, during the lifetime of the buffer.
struct PackedKey {
  const void* layout = nullptr;         // a unique address for every packing function
  const void* from = nullptr;           // the operand's first element
  std::vector<std::int64_t> numbers{};  // everything else that determines the bytes: extents, strides
  bool operator==(const PackedKey&) const = default;
};

/// The copies of one buffer.
class PrepackedWeights {
 public:
  /// Returns a copy of `bytes` bytes, 64-byte aligned, made by `pack` at the second use of a key. Returns null at the
  /// first use, without a buffer, if the buffer may change or is not owned by this engine, and if the limit leaves no
  /// room. Thread-safe.
  static StoragePtr find(Storage* buffer, const PackedKey& key, std::size_t bytes, FunctionRef<void(std::byte*)> pack);

  /// Total bytes of the copies of all buffers.
  static std::size_t bytes();
  /// Frees all copies that no thread is looking up at the moment.
  static void trim();

  PrepackedWeights();
  ~PrepackedWeights();
  PrepackedWeights(const PrepackedWeights&) = delete;

 private:
  struct Entry {
    PackedKey key;
    std::size_t bytes;
    StoragePtr copy;  // null: seen once
  };
  static void discharge(const Entry& e);
  StoragePtr find(const PackedKey& key, std::size_t bytes, FunctionRef<void(std::byte*)> pack);

  std::recursive_mutex mutex_;  // recursive: allocating a copy calls trim() when memory is short
  std::vector<Entry> entries_;  // least recently used first
  PrepackedWeights *next_ = nullptr, *previous_ = nullptr;  // in the list of all instances
};

/// Sets the limit of the total bytes of copies; initially FERMATA_PACKED_LIMIT, by default a sixteenth of the memory.
/// 0: no copies are kept from now on. Returns the previous limit.
std::size_t set_packed_limit(std::size_t bytes);

}  // namespace fermata

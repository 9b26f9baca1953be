// Copies of operands as kernels read them (panels of a matrix, filters in another order), kept beside the buffer of an
// operand that comes again: a constant, such as the weights of a model (docs/adr/019-packed-copies.md).
//
// A buffer's elements do not change while it lives, so a copy is good for as long. Copies go with their buffer, before
// results are written over it, and when memory is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/function_ref.h"
#include "runtime/storage.h"

namespace fermata {

/// What a copy is of. Two with equal keys have the same bytes, as long as the buffer lives.
struct PackedKey {
  const void* layout = nullptr;         // an address of its own for every packing function
  const void* from = nullptr;           // the operand's first element
  std::vector<std::int64_t> numbers{};  // all else that decides the bytes: extents, strides
  bool operator==(const PackedKey&) const = default;
};

/// The copies of one buffer.
class PrepackedWeights {
 public:
  /// A copy of `bytes` bytes that `pack` makes at the second sight of a key; null at the first, without a buffer or
  /// where that may change or is not this engine's own, and where the limit leaves no room for it. 64-byte aligned. Any
  /// thread may ask.
  static StoragePtr find(Storage* buffer, const PackedKey& key, std::size_t bytes, FunctionRef<void(std::byte*)> pack);

  /// Of all buffers together.
  static std::size_t bytes();
  /// Gives all back that no thread is asking for just now.
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

  std::recursive_mutex mutex_;  // to trim() is part of allocating a copy, where memory is short
  std::vector<Entry> entries_;  // used last last
  PrepackedWeights *next_ = nullptr, *previous_ = nullptr;  // in the list of all
};

/// Bytes that copies take in all; FERMATA_PACKED_LIMIT at the start, by default a sixteenth of the memory. 0: none are
/// kept from now on. Gives the limit before.
std::size_t set_packed_limit(std::size_t bytes);

}  // namespace fermata

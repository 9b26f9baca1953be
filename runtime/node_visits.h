// Where the nodes lie that a thread may be reading: a set that other threads look up before they cut off the operands
// of a node that they have computed.
//
// The set may have more in it than was read. It is a cache line of bits, one for some places in memory each, and is
// written only when a place is new. So threads that compute values of their own do not write what others read: they see
// each other's line in their caches, and never wait for each other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/node.h"

namespace fermata {

class NodeVisits {
 public:
  /// To be called before it is read whether the node is pending. Sequential consistency, here and of Node::storage,
  /// makes one of two things sure: the thread sees that the node has been published, or who publishes it sees the
  /// visit.
  void note(const Node* node) {
    const std::uintptr_t place = place_of(node);
    if (place == last_) return;
    last_ = place;
    std::atomic<std::uint64_t>& word = words_[bit_of(place) / 64];
    const std::uint64_t bit = std::uint64_t{1} << bit_of(place) % 64;
    if ((word.load(std::memory_order_relaxed) & bit) != 0) return;
    word.fetch_or(bit);
    ++places_;
  }
  /// All nodes.
  void note_all() {
    for (std::atomic<std::uint64_t>& word : words_) word.store(~std::uint64_t{0});
    places_ = 64 * words_.size();
  }
  /// Between two visits, so that what was read long ago does not count for ever.
  void forget_if_many() {
    if (places_ <= kMostPlaces) [[likely]]
      return;
    for (std::atomic<std::uint64_t>& word : words_) word.store(0, std::memory_order_release);
    places_ = 0, last_ = 0;
  }
  /// By any thread: false if the node has not been visited.
  bool may_have(const Node* node) const {
    const std::size_t bit = bit_of(place_of(node));
    return (words_[bit / 64].load() >> bit % 64 & 1) != 0;
  }

 private:
  /// A thread takes its nodes from runs of blocks (runtime/allocator.cpp), and uses the same few again and again.
  static std::uintptr_t place_of(const Node* node) { return reinterpret_cast<std::uintptr_t>(node) >> 13; }
  static std::size_t bit_of(std::uintptr_t place) { return place * 0x9E3779B97F4A7C15u >> 55; }
  static constexpr std::size_t kMostPlaces = 16;

  alignas(64) std::array<std::atomic<std::uint64_t>, 8> words_{};
  // Of the thread itself; the line that others read ends above.
  alignas(64) std::uintptr_t last_ = 0;
  std::size_t places_ = 0;
};

}  // namespace fermata

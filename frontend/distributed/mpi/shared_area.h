// Memory that the ranks of a group share, where all of them are on one machine.
//
// Each rank has a part that only it writes: posts, in which it shows what it gives to a round, and a heap for elements
// that do not fit into a post. A round is a step that all ranks of the group take, numbered from 1 on; a collective is
// one round or more. What a rank has posted stays until all ranks are done with that round.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <vector>

namespace fermata::distributed {

class SharedArea {
 public:
  /// Bytes of a post that hold elements: small calls take one transfer of cache lines and no place in the heap.
  static constexpr std::size_t kInlineBytes = 208;

  struct alignas(64) Post {
    std::atomic<std::uint64_t> round;  // written last
    std::uint64_t signature;           // of the call: all ranks make the same one
    std::int64_t count;
    std::uint64_t offset;  // of the elements in the heap; where they fit, they are here
    std::byte elements[kInlineBytes];
  };

  /// Null where a rank does not want it, or cannot reach the memory of another one. All ranks of the communicator call
  /// it.
  static std::unique_ptr<SharedArea> make(MPI_Comm comm, bool is_wanted, std::source_location where);
  ~SharedArea();
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  std::size_t ranks() const { return parts_.size(); }
  std::size_t rank() const { return own_; }

  /// The place for what this rank gives to a round; null where that is still taken by earlier rounds.
  std::byte* begin_post(std::uint64_t round, std::size_t bytes);
  void publish(std::uint64_t round, std::uint64_t signature, std::int64_t count);
  /// Null until the rank has published it.
  const Post* find_post(std::size_t rank, std::uint64_t round) const {
    const Post& post = post_of(rank, round);
    return post.round.load(std::memory_order_acquire) == round ? &post : nullptr;
  }
  const std::byte* elements(std::size_t rank, const Post& post) const {
    return post.offset == kInline ? post.elements : heap_of(rank) + post.offset;
  }
  /// This rank reads nothing of rounds up to this one any more.
  void set_done(std::uint64_t round);

 private:
  static constexpr std::uint64_t kPosts = 256;
  static constexpr std::uint64_t kInline = ~std::uint64_t{0};
  /// Addresses only: pages are taken when they are first used, and the lowest ones that are free are used first.
  static constexpr std::size_t kHeapBytes = std::size_t{64} << 20;

  struct alignas(64) Part {
    std::uint64_t cookie;
    alignas(64) std::atomic<std::uint64_t> done;
    Post posts[kPosts];
  };
  struct Block {
    std::size_t begin, end;
    std::uint64_t round;
  };
  static constexpr std::size_t kPartBytes = (sizeof(Part) + 4095) / 4096 * 4096 + kHeapBytes;

  SharedArea() = default;
  Post& post_of(std::size_t rank, std::uint64_t round) const { return parts_[rank]->posts[round % kPosts]; }
  std::byte* heap_of(std::size_t rank) const {
    return reinterpret_cast<std::byte*>(parts_[rank]) + (kPartBytes - kHeapBytes);
  }
  bool are_all_done(std::uint64_t round);

  std::size_t own_ = 0;
  std::vector<Part*> parts_;
  std::vector<Block> blocks_;      // of the own heap, by address
  std::uint64_t done_by_all_ = 0;  // at least
};

}  // namespace fermata::distributed

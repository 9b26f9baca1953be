// Shared memory of the ranks of a group, if all of them are on one machine.
//
// Each rank has a region that only it writes: posts, which publish its operands for a round, and a heap for elements
// that do not fit into a post. A round is a step that all ranks of the group take, numbered from 1; a collective takes
// one or more rounds. A post remains valid until all ranks have finished its round.
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
  /// Bytes of a post that hold elements: small calls move one cache line or a few, and need no heap.
  static constexpr std::size_t kInlineBytes = 208;

  struct alignas(64) Post {
    std::atomic<std::uint64_t> round;  // written last
    std::uint64_t signature;           // of the call: all ranks make the same one
    std::int64_t count;
    std::uint64_t offset;  // of the elements in the heap; small ones are stored here
    std::byte elements[kInlineBytes];
  };

  /// Null if a rank has disabled it, or cannot map the memory of another one. All ranks of the communicator must call
  /// it.
  static std::unique_ptr<SharedArea> make(MPI_Comm comm, bool is_wanted, std::source_location where);
  ~SharedArea();
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  std::size_t ranks() const { return parts_.size(); }
  std::size_t rank() const { return own_; }

  /// The post of this rank for a round; null while earlier rounds still use its memory.
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
  /// This rank has finished reading all rounds up to this one.
  void set_done(std::uint64_t round);

 private:
  static constexpr std::uint64_t kPosts = 256;
  static constexpr std::uint64_t kInline = ~std::uint64_t{0};
  /// Address space only: pages are allocated on first use, and the lowest free ones are used first.
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
  std::vector<Block> blocks_;      // of this rank's heap, by address
  std::uint64_t done_by_all_ = 0;  // at least
};

}  // namespace fermata::distributed

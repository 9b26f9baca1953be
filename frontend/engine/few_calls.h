// The fast path of a sync: a few pointwise calls and reductions of small tensors run directly, by the loops and kernels
// of eager mode. Skips the walk, key and plan, which would cost more than the calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dispatch/kernel_table.h"
#include "runtime/node.h"
#include "runtime/node_visits.h"

namespace fermata {

class FewCalls {
 public:
  /// Lists the pending calls under the roots, operands first. Returns false if there are so many or so large calls that
  /// a plan is faster, or others than pointwise calls and reductions.
  /// Nodes are noted before they are read.
  bool list(std::span<Node* const> roots, NodeVisits& visits);
  /// Runs the calls. Results are owned by this object until they are taken.
  void run();

  struct Call {
    Node* node;
    InnerLoop loop;  // null: use a kernel over views
    std::int64_t elements;
    std::array<Storage*, Node::kInlineInputs> buffer;      // of materialized operands; null for others
    std::array<std::uint8_t, Node::kInlineInputs> source;  // of the others: the number of their call
    DType operand;
    bool is_root;
    std::uint32_t uses;  // operands in this list that refer to it
    StoragePtr result;
    /// Whether the value may be needed outside this list.
    bool is_wanted() const {
      const std::uint64_t refs = node->refs.load(std::memory_order_relaxed);
      return is_root || refs >> 32 != 0 || (refs & 0xffffffffu) > uses;
    }
  };
  std::span<Call> calls() { return {calls_.data(), count_}; }
  /// Drops results that were not taken.
  void clear();

 private:
  static constexpr std::size_t kMost = 8;
  bool add(Node* n, std::size_t& number, NodeVisits& visits);
  void run_loop(Call& call) const;
  void run_kernel(Call& call) const;
  Storage* buffer_of(const Call& call, unsigned k) const {
    return call.buffer[k] != nullptr ? call.buffer[k] : calls_[call.source[k]].result.get();
  }

  std::array<Call, kMost> calls_{};
  std::size_t count_ = 0, weight_ = 0;
};

}  // namespace fermata

// The shortest way through a sync: a few pointwise calls and reductions of small tensors are made one after the other,
// by the loops and kernels that eager calls run. No walk, no key and no plan, which would cost more than the calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dispatch/kernel_table.h"
#include "runtime/node.h"

namespace fermata {

class FewCalls {
 public:
  /// Lists what is pending under the roots, operands first. False where that is more or larger than what a plan would
  /// be slower at, or is neither a pointwise call nor a reduction.
  bool list(std::span<Node* const> roots);
  /// Makes the calls. Results are owned by this until somebody takes them.
  void run();

  struct Call {
    Node* node;
    InnerLoop loop;  // null: a kernel over views is chosen
    std::int64_t elements;
    std::array<Storage*, Node::kInlineInputs> buffer;      // of operands that are there; null for the others
    std::array<std::uint8_t, Node::kInlineInputs> source;  // of those: the number of the call
    DType operand;
    bool is_root;
    std::uint32_t uses;  // operands in this list that refer to it
    StoragePtr result;
    /// Whether somebody beside the calls of this list may ask for the value.
    bool is_wanted() const {
      const std::uint64_t refs = node->refs.load(std::memory_order_relaxed);
      return is_root || refs >> 32 != 0 || (refs & 0xffffffffu) > uses;
    }
  };
  std::span<Call> calls() { return {calls_.data(), count_}; }
  /// Gives up what nobody took.
  void clear();

 private:
  static constexpr std::size_t kMost = 8;
  bool add(Node* n, std::size_t& number);
  void run_loop(Call& call) const;
  void run_kernel(Call& call) const;
  Storage* buffer_of(const Call& call, unsigned k) const {
    return call.buffer[k] != nullptr ? call.buffer[k] : calls_[call.source[k]].result.get();
  }

  std::array<Call, kMost> calls_{};
  std::size_t count_ = 0, weight_ = 0;
};

}  // namespace fermata

// The shortest way through a sync: a few pointwise calls on small dense tensors run one after the other by the loops
// that eager calls run. No walk, no key and no plan, which would cost more than the calls.
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
  /// be slower at, or has a call that no inner loop makes.
  bool list(std::span<Node* const> roots);
  /// Makes the calls. Results are owned by this until somebody takes them.
  void run();

  struct Call {
    Node* node;
    InnerLoop loop;
    std::int64_t elements;
    std::array<const void*, Node::kInlineInputs> data;     // of operands that are there
    std::array<std::uint8_t, Node::kInlineInputs> source;  // of the others: the number of the call
    std::array<bool, Node::kInlineInputs> is_splat;
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

  std::array<Call, kMost> calls_{};
  std::size_t count_ = 0;
};

}  // namespace fermata

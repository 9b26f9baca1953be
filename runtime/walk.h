// The walk: pending nodes under some roots in canonical order, and the exact key of that graph.
//
// The key is the graph itself: a few words per node, then the numbers of its operands, and the outputs at the end.
// Equal keys are equal structures, so verifying a cache hit is one comparison. Sizes (but for last axes of one
// element), scalars, and the starts and steps of slices are not in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/function_ref.h"
#include "runtime/growable_array.h"
#include "runtime/node.h"

namespace fermata {

/// Whether the last axis of a matrix or more has one element. Of leaves the key says so: it is where the lanes of a
/// kernel go.
inline bool ends_in_single_elements(std::span<const std::int64_t> sizes) {
  return sizes.size() >= 2 && sizes.back() == 1;
}

class Walk {
 public:
  struct Entry {
    Node* node;
    Storage* storage;    // of a leaf; null for a pending node
    std::uint32_t uses;  // operands in this walk that refer to it
    bool is_kept;        // a leaf that a value reads which the tape may ask for again
    bool is_root;
  };
  GrowableArray<Entry> order;  // operands before users
  GrowableArray<std::uint32_t> key;
  std::vector<std::uint32_t> outputs;          // numbers in `order`
  GrowableArray<std::uint32_t> operands;       // numbers of all operands, node by node; kScalarOperand for host scalars
  GrowableArray<std::uint32_t> first_operand;  // per entry: where its operands start

  bool has_boxed = false;        // whether kernels over tensors are among the calls
  bool has_effects = false;      // whether built-in ops with an effect are
  bool has_distributed = false;  // whether leaves are divided among processes
  BackendKey backend{};          // of everything that is pending; leaves of rank 0 may be the CPU's

  static constexpr std::uint32_t kScalarOperand = ~1u;

  /// Walks what is pending under the roots. Outputs are the roots and, unless `roots_only`, every value that a handle
  /// still names or that a node outside this graph reads. Of what only autograd asks for, values that cost more to
  /// compute again than to keep are outputs, and the others are computed again from such (docs/adr/003). The roots are
  /// of one backend.
  /// What `is_leaf` says so of counts as one: a value that is there before the graph runs, dense and row-major.
  using IsLeaf = FunctionRef<bool(const Node*)>;
  /// Waits for other threads that write over leaves; OutOfMemoryError FM3003 where that has failed.
  void run(std::span<Node* const> roots, bool roots_only = false, const IsLeaf* is_leaf = nullptr);

 private:
  bool find_order(std::span<Node* const> roots, const IsLeaf* is_leaf);
  static constexpr std::uint32_t kUnseen = ~0u, kOutputs = ~0u;
  /// By the sparse-set test (Briggs and Torczon, 1993): a stale hint, or one left by another thread's walk, fails it.
  std::uint32_t number(const Node* n) const {
    const std::uint32_t h = n->hint.load(std::memory_order_relaxed);
    return h < order.size() && order[h].node == n ? h : kUnseen;
  }
  std::uint32_t find(const Node* n) const {
    const std::uint32_t hinted = number(n);
    return hinted != kUnseen ? hinted : search(n);
  }
  std::uint32_t search(const Node* n) const;
  void add(Node* n, Storage* storage);
  void add_leaf(Node* n, Storage* storage);
  void note_leaf_without_buffer(const Storage& storage);
  void add_pending(Node* n);
  void add_other(Node* n);  // that takes more words
  void add_operands(const Node& n, std::uint32_t* in_key, std::size_t count);
  void add_outputs(bool roots_only);
  void add_recompute_inputs(std::size_t key_begin);
  struct Visit {
    Node* node;
    bool operands_listed;  // what is pending under it comes first on the stack
  };
  GrowableArray<Visit> stack_;
};

}  // namespace fermata

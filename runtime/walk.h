// The walk: pending nodes under some roots in canonical order, and the exact key of that graph.
//
// The key is the graph itself: a few words per node, then the numbers of its operands, and the outputs at the end.
// Equal keys are equal structures, so verifying a cache hit is one comparison. Sizes (except last axes of one element),
// scalars, and the starts and steps of slices are not part of it. Its last word tells leaves with a short last axis
// from others, and reductions of one class (ir/reduction_class.h) from others: code for one is right for the other, but
// what is fused and what is a call is chosen for the sizes at hand.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/custom_op.h"
#include "ir/op_traits.h"
#include "runtime/backend_capabilities.h"
#include "runtime/function_ref.h"
#include "runtime/growable_array.h"
#include "runtime/node.h"
#include "runtime/node_visits.h"

namespace fermata {

/// Whether the last axis has one element, for rank 2 and higher. The key records this for leaves and views, because
/// kernels vectorize along the last axis.
inline bool ends_in_single_elements(std::span<const std::int64_t> sizes) {
  return sizes.size() >= 2 && sizes.back() == 1;
}

/// Whether the key records that of values of this op.
inline bool records_single_elements(Op op) { return op == Op::input || (!is_boxed(op) && is_view(op)); }

/// Whether the last axis leaves lanes of vectors empty.
inline bool ends_in_short_rows(std::span<const std::int64_t> sizes) {
  return sizes.size() >= 2 && sizes.back() <= kLongestShortRow;
}

/// From so many elements on, a view that repeats a smaller value is never written out because a handle names it, and is
/// recorded so that no step of a plan writes it out either.
inline constexpr std::int64_t kVastView = std::int64_t{1} << 28;

class Walk {
 public:
  struct Entry {
    Node* node;
    Storage* storage;    // of a leaf; null for a pending node
    std::uint32_t uses;  // number of operands in this walk that refer to it
    bool is_kept;        // a leaf read by a value that the tape may need again
    bool is_root;
  };
  GrowableArray<Entry> order;  // operands before users
  GrowableArray<std::uint32_t> key;
  std::vector<std::uint32_t> outputs;  // numbers in `order`
  /// A view that would be an output, of a value that has a buffer then: it shows a part of that and is not computed.
  struct ShownView {
    std::uint32_t view, source;  // numbers in `order`; the source is an output or a leaf
    Shape strides;
    std::int64_t offset;  // in elements of the source's buffer
  };
  std::vector<ShownView> views;
  GrowableArray<std::uint32_t> operands;       // numbers of all operands, node by node; kScalarOperand for host scalars
  GrowableArray<std::uint32_t> first_operand;  // per entry: the index of its first operand

  bool has_boxed = false;        // whether the calls include kernels over tensors
  bool has_effects = false;      // whether the calls include built-in ops with an effect
  bool has_distributed = false;  // whether any leaf is divided among processes
  BackendKey backend{};          // of all pending nodes; leaves of rank 0 may be on the CPU

  NodeVisits* visits = nullptr;  // where nodes are noted before they are read; null if no other thread computes them

  static constexpr std::uint32_t kScalarOperand = ~1u;

  /// Walks the pending nodes under the roots, which are of one backend. Outputs are the roots and, unless `roots_only`,
  /// every value that a handle still names or that a node outside this graph reads. Of the values that only autograd
  /// needs, those that cost more to recompute than to keep are outputs, and the others are recomputed from them
  /// (docs/adr/003). Views of values that have a buffer are listed apart, unless `roots_only`. A node for which
  /// `is_leaf` returns true is treated as a leaf: a value that exists before the graph runs, dense and row-major.
  using IsLeaf = FunctionRef<bool(const Node*)>;
  /// Waits for other threads that overwrite leaves; throws OutOfMemoryError FM3003 if such a write has failed.
  void run(std::span<Node* const> roots, bool roots_only = false, const IsLeaf* is_leaf = nullptr);
  /// Whether outputs and views are all roots.
  bool has_roots_only() const;
  /// The key without what only the choice of kernels depends on.
  std::span<const std::uint32_t> structure() const { return {key.begin(), key.size() - 1}; }

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
  void add_other(Node* n);  // for nodes that take more words
  void add_operands(const Node& n, std::uint32_t* in_key, std::size_t count);
  void note_sizes(std::uint32_t number) { sizes_ = std::rotl(sizes_, 5) ^ number; }
  void add_outputs(bool roots_only);
  void add_recompute_inputs(std::size_t key_begin);
  void add_sources_of_views(std::size_t key_begin);
  bool add_view(std::uint32_t number);
  struct Visit {
    Node* node;
    bool operands_listed;  // its pending operands are on the stack above it
  };
  GrowableArray<Visit> stack_;
  std::vector<std::uint32_t> chain_;  // of views, the last one first
  /// What decides how a plan computes: whether rows of leaves are short, and the classes of reductions.
  std::uint32_t sizes_ = 0;
};

}  // namespace fermata

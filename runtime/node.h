// Nodes: recorded values.
//
// A node is a value: fixed once recorded and computed once. Recording a consumer reads its first cache line, walking
// and freeing read the second. Everything is immutable except `refs`, `storage` (set once), `hint` and `depth` (scratch
// of the recorder), `tape`, and `inputs` (cleared when the value exists and no thread can be reading them).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "ir/infer.h"
#include "ir/key_set.h"
#include "ir/op.h"
#include "ir/shape.h"
#include "runtime/allocator.h"
#include "runtime/storage.h"

namespace fermata {

struct Node;

/// The rare half of a node, out of line: high ranks, strides of leaves, attributes, more operands, more scalars.
struct NodeExtra {
  NodeExtra() {}  // not an aggregate, which would be cleared first
  static void* operator new(std::size_t bytes) { return BlockPool::allocate(BlockPool::class_of(bytes)); }
  static void operator delete(void* block) noexcept {
    BlockPool::release(block, BlockPool::class_of(sizeof(NodeExtra)));
  }

  Shape sizes;                           // if rank > Node::kInlineRank
  Shape strides;                         // of leaves that are not dense; rank 0 otherwise
  std::int64_t offset = 0;               // in elements, of a leaf in its storage
  bool strided = false;                  // strides and offset are valid
  BlockVector<std::int64_t> attributes;  // as in ir/graph.h
  BlockVector<std::uint64_t> scalars;
  BlockVector<Node*> more_inputs;              // operands after the third
  std::uint32_t context = 0;                   // boxed calls: as in ir/graph.h
  std::shared_ptr<const Subgraphs> subgraphs;  // the functions owned by the node; null for most ops
};

struct alignas(64) Node {
  static constexpr std::uint64_t kEdge = 1, kTensor = 1ull << 32;
  static constexpr unsigned kInlineRank = 4, kInlineInputs = 3;

  std::atomic<std::uint64_t> refs;  // tensors << 32 | edges: one word, so one instruction moves either and sees both
  std::atomic<Storage*> storage;    // null while pending
  Op op;
  DType dtype;
  std::uint8_t rank;
  std::uint8_t arity;  // operands in `inputs`, scalars included; the rest is in extra->more_inputs
  BackendKey backend;
  std::uint16_t reserved = 0;
  std::array<std::int64_t, kInlineRank> inline_sizes;
  std::source_location where;

  std::array<Node*, kInlineInputs> inputs;  // null if the operand is `scalar`
  std::uint64_t scalar;  // the one host scalar of a pointwise op; [axes, keepdims << 16] of a reduction
  NodeExtra* extra;
  std::uint32_t hash;                // of the expression as recorded: a hint for lookups, never proof of equality
  std::atomic<std::uint32_t> hint;   // number in the walk that visited the node last: verified before use
  std::atomic<std::uint32_t> depth;  // longest chain of pending nodes that ends here, at the time of recording
  std::atomic<std::uint32_t> tape;   // number of edges held by autograd only: weak, see docs/adr/003
  std::array<std::uint16_t, kInlineInputs> stretched;  // per operand: result axes along which it is broadcast
  std::uint16_t reserved2 = 0;

  std::span<const std::int64_t> sizes() const {
    return {rank <= kInlineRank ? inline_sizes.data() : extra->sizes.data(), rank};
  }
  TensorType type() const { return {dtype, Shape(sizes())}; }
  bool pending() const { return storage.load(std::memory_order_acquire) == nullptr; }
  bool is_dense_leaf() const { return extra == nullptr || !extra->strided; }
  /// The attributes, as in ir/graph.h, except those of a reduction, which are in `scalar`.
  std::span<const std::int64_t> stored_attributes() const {
    return extra != nullptr ? std::span<const std::int64_t>(extra->attributes) : std::span<const std::int64_t>();
  }
  std::size_t operand_count() const { return arity + (extra != nullptr ? extra->more_inputs.size() : 0); }
  Node* operand(std::size_t i) const { return i < arity ? inputs[i] : extra->more_inputs[i - arity]; }
};
static_assert(sizeof(Node) == 128 && offsetof(Node, inputs) == 64 && sizeof(std::source_location) == 8);

/// Allocates uninitialized memory for a node; may throw OutOfMemoryError.
void* allocate_node();
/// Frees a value and the values that only it kept alive. Dead nodes are linked intrusively: no recursion and no
/// allocation.
void destroy_node(Node* dead);
inline void drop_edge(Node* n) {
  if (drop_references(n->refs, Node::kEdge)) destroy_node(n);
}
/// Makes a node over a buffer with `references` as its count. Takes over one reference of the storage.
Node* make_leaf(const TensorType& type, Storage* storage, BackendKey backend, std::uint64_t references);
Node* make_strided_leaf(const TensorType& type, const Shape& strides, std::int64_t offset, Storage* storage,
                        BackendKey backend, std::uint64_t references);
/// The attributes as listed in ir/graph.h, wherever the node stores them.
std::vector<std::int64_t> attributes_of(const Node& node);

}  // namespace fermata

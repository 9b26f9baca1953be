// See node.h.
#include "runtime/node.h"

#include <memory>
#include <new>
#include <utility>

#include "runtime/allocator.h"
#include "runtime/retained_leaves.h"

namespace fermata {

using std::memory_order_relaxed;

void* allocate_node() { return BlockPool::allocate(BlockPool::class_of(sizeof(Node))); }

/// Out of line: few nodes have one, and its members take registers from the loop below.
[[gnu::noinline]] static void destroy_extra(NodeExtra* extra) { delete extra; }

void destroy_node(Node* dead) {
  // `inputs[0]` of a dead node is free to link the list once its operands are dropped, but they are dropped while the
  // list is walked: so the link goes through `scalar`, which nothing reads any more.
  const auto link = [](Node* n, Node* next) { n->scalar = reinterpret_cast<std::uint64_t>(next); };
  const auto next = [](Node* n) { return reinterpret_cast<Node*>(n->scalar); };
  link(dead, nullptr);
  // Edges to a node that others hold too are given up together: the nodes of a chain often share an operand.
  Node* shared = nullptr;
  std::uint64_t edges = 0;
  const auto give_up = [&] {
    if (shared != nullptr && drop_references(shared->refs, edges * Node::kEdge)) link(shared, dead), dead = shared;
    shared = nullptr, edges = 0;
  };
  const auto drop = [&](Node* in) {
    if (in == nullptr) return;
    if (in->refs.load(std::memory_order_acquire) == Node::kEdge) {
      link(in, dead), dead = in;
    } else {
      if (in != shared) give_up();
      shared = in, ++edges;
    }
  };
  for (; dead != nullptr; dead == nullptr ? give_up() : void()) {
    Node* n = dead;
    dead = next(n);
    for (Node* in : n->inputs) drop(in);
    if (n->extra != nullptr) {
      for (Node* in : n->extra->more_inputs) drop(in);
      destroy_extra(n->extra);
    }
    if (Storage* s = n->storage.load(memory_order_relaxed)) {
      if ((n->depth.load(memory_order_relaxed) & kListedLeaf) != 0) [[unlikely]]
        unlist_leaf(n);
      s->release();
    }
    n->~Node();
    BlockPool::release(n, BlockPool::class_of(sizeof(Node)));
  }
}

namespace {

Node* leaf(const TensorType& type, StoragePtr storage, BackendKey backend, std::uint64_t references,
           std::unique_ptr<NodeExtra> extra) {
  if (type.shape.rank() > Node::kInlineRank) {
    if (extra == nullptr) extra = std::make_unique<NodeExtra>();
    extra->sizes = type.shape;
  }
  void* const block = allocate_node();  // the last thing that may throw
  std::array<std::int64_t, Node::kInlineRank> sizes{};
  for (unsigned i = 0; i < type.shape.rank() && i < sizes.size(); ++i) sizes[i] = type.shape[i];
  // Without gaps: g++ would clear the whole node first.
  return ::new (block) Node{.refs{references},
                            .storage{storage.release()},
                            .op = Op::input,
                            .dtype = type.dtype,
                            .rank = static_cast<std::uint8_t>(type.shape.rank()),
                            .arity = 0,
                            .backend = backend,
                            .inline_sizes = sizes,
                            .where = {},
                            .inputs = {nullptr, nullptr, nullptr},
                            .scalar = 0,
                            .extra = extra.release(),
                            .hash = static_cast<std::uint32_t>(type.dtype),
                            .hint{0},
                            .depth{0},
                            .tape{0},
                            .stretched = {0, 0, 0}};
}

}  // namespace

Node* make_leaf(const TensorType& type, Storage* storage, BackendKey backend, std::uint64_t references) {
  return leaf(type, StoragePtr(storage), backend, references, nullptr);
}

Node* make_strided_leaf(const TensorType& type, const Shape& strides, std::int64_t offset, Storage* storage,
                        BackendKey backend, std::uint64_t references) {
  StoragePtr held(storage);
  if (offset == 0 && is_dense(type.shape, strides)) return leaf(type, std::move(held), backend, references, nullptr);
  auto extra = std::make_unique<NodeExtra>();
  extra->strides = strides, extra->offset = offset, extra->strided = true;
  return leaf(type, std::move(held), backend, references, std::move(extra));
}

std::vector<std::int64_t> attributes_of(const Node& node) {
  if (family(node.op) == Family::reduce)
    return {static_cast<std::int64_t>(node.scalar & 0xffff), static_cast<std::int64_t>(node.scalar >> 16 & 1)};
  if (node.extra == nullptr) return {};
  return {node.extra->attributes.begin(), node.extra->attributes.end()};
}

}  // namespace fermata

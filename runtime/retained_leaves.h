// A list of the leaves that pending calls read, to count the memory that only these calls keep alive.
//
// A leaf is listed when a call that reads it is recorded, or when it is computed while it has readers, and stays listed
// until it is destroyed. No running total is kept: a query visits every listed leaf, so no total can drift. Small
// leaves are not listed, because the bound on chains of calls bounds them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/node.h"

namespace fermata {

/// The smallest buffer whose leaves are listed, in bytes.
inline constexpr std::size_t kLeastListed = std::size_t{64} << 10;
/// A flag in Node::depth, which leaves do not use.
inline constexpr std::uint32_t kListedLeaf = 1u << 31;

/// Lists a leaf; the caller holds a reference to it. Does nothing if out of memory.
void list_leaf(Node* leaf) noexcept;
/// Called when a listed leaf is destroyed.
void unlist_leaf(Node* leaf) noexcept;

/// Bytes of the buffers of listed leaves that only calls keep alive: no tensor names them, and the tape does not need
/// them.
std::size_t bytes_of_unnamed_leaves();

/// The limit of bytes that pending calls keep alive: FERMATA_RETAINED_LIMIT, by default a quarter of the memory of this
/// process, FERMATA_MEMORY_LIMIT. 0 is no limit.
std::atomic<std::size_t>& retained_limit();

/// Whether only calls keep a leaf alive.
inline bool is_unnamed(const Node& leaf) {
  const std::uint64_t refs = leaf.refs.load(std::memory_order_relaxed);
  return refs != 0 && refs < Node::kTensor && leaf.tape.load(std::memory_order_relaxed) == 0;
}

}  // namespace fermata

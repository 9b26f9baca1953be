// Leaves that pending calls read, listed, so that what only these calls keep in memory can be counted.
//
// A leaf is listed when a call that reads it is recorded, or when it is computed while it has readers, and until it
// dies. Nothing is added up meanwhile: who asks looks at every listed leaf, so no figure can drift. Small leaves are
// not listed: the bound on chains of calls bounds them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/node.h"

namespace fermata {

/// The smallest buffer whose leaves are listed, in bytes.
inline constexpr std::size_t kLeastListed = std::size_t{64} << 10;
/// In Node::depth, which leaves do not need.
inline constexpr std::uint32_t kListedLeaf = 1u << 31;

/// The caller holds a reference of the leaf. Where there is no memory for it, the leaf is not listed.
void list_leaf(Node* leaf) noexcept;
/// When a listed leaf dies.
void unlist_leaf(Node* leaf) noexcept;

/// Bytes of the buffers of listed leaves that are kept by nothing but calls: no tensor names them, and the tape will
/// not ask for them.
std::size_t bytes_of_unnamed_leaves();

/// The most that pending calls are to keep: the memory of this process, FERMATA_MEMORY_LIMIT, by four where
/// FERMATA_RETAINED_LIMIT says nothing. 0 is no limit.
std::atomic<std::size_t>& retained_limit();

/// Whether nothing but calls keeps a leaf.
inline bool is_unnamed(const Node& leaf) {
  const std::uint64_t refs = leaf.refs.load(std::memory_order_relaxed);
  return refs != 0 && refs < Node::kTensor && leaf.tape.load(std::memory_order_relaxed) == 0;
}

}  // namespace fermata

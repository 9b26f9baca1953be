// Checkpoints that all processes write: a file of each with its blocks, and an index that names them all.
//
// A block has an entry of its own, whose name says which elements of which tensor it has: "w#block 0:4,2:6 of 8,6". The
// index has a number that no other save has, and so have its files: an index never names files of another save.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "fermata/safetensors.h"
#include "ir/dtype.h"
#include "ir/shape.h"

namespace fermata {

/// The metadata in which index and files have the number of their save.
inline constexpr std::string_view kBlocksNote = "fermata.blocks";

/// Elements from `begin` on, so many along each axis.
struct Region {
  Shape begin, sizes;
};

struct BlockName {
  std::string tensor;
  Region region;
  Shape whole;
};
std::string block_entry_name(const BlockName& block);
/// Nothing for the name of a whole tensor. A block that does not lie in its tensor is `is_valid` = false.
std::optional<BlockName> parse_block_name(std::string_view entry, bool& is_valid);

/// Copies the elements that are in both regions. Both are dense, in row-major order.
void copy_common(const std::byte* from, const Region& of_from, std::byte* to, const Region& of_to,
                 std::size_t element_bytes);

/// One file, written whole or not at all.
void write_safetensors(std::string_view function, const std::string& path, const NamedTensors& tensors,
                       const Metadata& metadata, Location where);
/// What elements take in a file.
std::size_t stored_bytes(DType dtype, std::int64_t count);

/// All processes write an index and its files. Collective.
void save_blocks(const std::string& index, const NamedTensors& tensors, const Metadata& metadata, Location where);

}  // namespace fermata

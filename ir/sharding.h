// How a tensor is divided among the processes of a mesh.
//
// A mesh is a grid of processes with named axes. A sharding lists, for each axis of a tensor, the mesh axes along which
// it is divided. Several mesh axes divide one axis in the order of the mesh: the first one is the slowest. A tensor is
// replicated along the mesh axes that none of its axes names: all processes along them have the same block.
//
// A mesh axis of p processes divides n elements into blocks of n / p, rounded up: the last ones are shorter, or empty,
// if p does not divide n. A process keeps and computes with the elements of its block alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/shape.h"

namespace fermata {

inline constexpr std::size_t kMaxMeshAxes = 8;

struct MeshAxes {
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes;

  std::size_t count() const { return sizes.size(); }
  std::int64_t processes() const {
    std::int64_t n = 1;
    for (const std::int64_t size : sizes) n *= size;
    return n;
  }
  /// The coordinates of a process in the grid; the last axis is the fastest.
  std::vector<std::int64_t> coordinates(std::int64_t rank) const {
    std::vector<std::int64_t> at(count());
    for (std::size_t m = count(); m-- > 0; rank /= sizes[m]) at[m] = rank % sizes[m];
    return at;
  }
  /// The number of blocks that a set of mesh axes, one bit each, divides into.
  std::int64_t parts(unsigned mask) const {
    std::int64_t n = 1;
    for (std::size_t m = 0; m < count(); ++m)
      if ((mask >> m & 1u) != 0) n *= sizes[m];
    return n;
  }
  bool operator==(const MeshAxes&) const = default;
};

struct Sharding {
  std::array<std::uint8_t, kMaxRank> axes{};  // by axis of the tensor: a bit for each mesh axis

  bool is_whole() const { return axes == Sharding().axes; }
  /// The mesh axes that divide any axis.
  unsigned used() const {
    unsigned mask = 0;
    for (const std::uint8_t a : axes) mask |= a;
    return mask;
  }
  bool operator==(const Sharding&) const = default;
};

/// The elements of an axis that a process has.
struct OwnPart {
  std::int64_t begin = 0, count = 0;
  std::int64_t most = 0;  // that any process has
};
inline OwnPart own_part(std::int64_t size, unsigned mask, const MeshAxes& mesh,
                        const std::vector<std::int64_t>& coordinates) {
  OwnPart part{0, size, size};
  for (std::size_t m = 0; m < mesh.count(); ++m) {
    if ((mask >> m & 1u) == 0) continue;
    part.most = (part.most + mesh.sizes[m] - 1) / mesh.sizes[m];
    const std::int64_t at = std::min(coordinates[m] * part.most, part.count);
    part.begin += at, part.count = std::min(part.count - at, part.most);
  }
  return part;
}

/// The shape of the block of the process at these coordinates.
inline Shape block_shape(const Shape& shape, const Sharding& sharding, const MeshAxes& mesh,
                         const std::vector<std::int64_t>& coordinates) {
  Shape block = shape;
  for (unsigned i = 0; i < shape.rank(); ++i) block[i] = own_part(shape[i], sharding.axes[i], mesh, coordinates).count;
  return block;
}
/// The shape of the largest block: the same for all processes.
inline Shape largest_block(const Shape& shape, const Sharding& sharding, const MeshAxes& mesh) {
  return block_shape(shape, sharding, mesh, std::vector<std::int64_t>(mesh.count(), 0));
}
/// The start of the block of the process at these coordinates.
inline Shape block_begin(const Shape& shape, const Sharding& sharding, const MeshAxes& mesh,
                         const std::vector<std::int64_t>& coordinates) {
  Shape begin = shape;
  for (unsigned i = 0; i < shape.rank(); ++i) begin[i] = own_part(shape[i], sharding.axes[i], mesh, coordinates).begin;
  return begin;
}

/// Text: [data, -, data+model]; one item for each axis of the tensor.
inline std::string to_string(const Sharding& sharding, unsigned rank, const MeshAxes& mesh) {
  std::string text = "[";
  for (unsigned i = 0; i < rank; ++i) {
    std::string item;
    for (std::size_t m = 0; m < mesh.count(); ++m)
      if ((sharding.axes[i] >> m & 1) != 0) item += (item.empty() ? "" : "+") + mesh.names[m];
    text += (i > 0 ? ", " : "") + (item.empty() ? "-" : item);
  }
  return text + "]";
}

}  // namespace fermata

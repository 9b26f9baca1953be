// How a tensor is divided among the processes of a mesh.
//
// A mesh is a grid of processes with named axes. A sharding lists, for each axis of a tensor, the mesh axes along which
// it is divided into equal blocks. Several mesh axes divide one axis in the order of the mesh: the first one is the
// slowest. A tensor is replicated along the mesh axes that none of its axes names: all processes along them have the
// same block.
#pragma once

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

/// The shape of a block.
inline Shape block_shape(const Shape& shape, const Sharding& sharding, const MeshAxes& mesh) {
  Shape block = shape;
  for (unsigned i = 0; i < shape.rank(); ++i) block[i] /= mesh.parts(sharding.axes[i]);
  return block;
}

/// The start of the block of the process at these coordinates.
inline Shape block_begin(const Shape& shape, const Sharding& sharding, const MeshAxes& mesh,
                         const std::vector<std::int64_t>& coordinates) {
  Shape begin = shape;
  for (unsigned i = 0; i < shape.rank(); ++i) {
    std::int64_t number = 0;
    for (std::size_t m = 0; m < mesh.count(); ++m)
      if ((sharding.axes[i] >> m & 1u) != 0) number = number * mesh.sizes[m] + coordinates[m];
    begin[i] = number * (shape[i] / mesh.parts(sharding.axes[i]));
  }
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

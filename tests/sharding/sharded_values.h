// Compares values of sharded programs with those of one process.
#pragma once

#include <fermata/fermata.h>
#include <fermata/mesh.h>

#include <random>
#include <string>
#include <vector>

#include "passes/partition.h"
#include "tests/frontend/close_values.h"

namespace fermata::test {

/// Some way to divide a tensor, evenly or not; all processes that ask the same generator get the same one.
inline AxisSplits random_splits(const Shape& shape, const Mesh& mesh, const std::vector<std::string>& names,
                                std::mt19937_64& random) {
  AxisSplits splits(shape.rank());
  std::vector<std::int64_t> left(shape.begin(), shape.end());
  for (const std::string& name : names) {
    if (shape.rank() == 0 || random() % 4 == 0) continue;
    const std::size_t axis = random() % shape.rank();
    const std::int64_t parts = mesh.size(name);
    if (left[axis] == 0 || (left[axis] % parts != 0 && random() % 2 == 0)) continue;
    left[axis] = (left[axis] + parts - 1) / parts;
    splits[axis].names.push_back(name);
  }
  return splits;
}

/// Transfers cost nothing to speak of: even small programs are sharded wherever they can be.
struct CheapTransfers {
  CheapTransfers() { partition_costs = {.latency = 1e-12, .bytes_per_second = 1e16}; }
  ~CheapTransfers() { partition_costs = before; }
  CheapTransfers(const CheapTransfers&) = delete;
  CheapTransfers& operator=(const CheapTransfers&) = delete;
  PartitionCosts before = partition_costs;
};

struct MeshCase {
  int rows, columns;
  int processes() const { return rows * columns; }
};
inline constexpr MeshCase kMeshes[] = {{1, 2}, {2, 1}, {2, 2}, {4, 1}, {3, 2}};

}  // namespace fermata::test

// The data that a bind reads from the records, except scalars and what the key determines: sizes, attributes, layouts
// of leaves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/node.h"

namespace fermata {

class RecordGeometry {
 public:
  void remember(std::span<const Node* const> records);
  /// Whether other records, of the same key, have the stored geometry.
  bool is_that_of(std::span<const Node* const> records);

 private:
  std::vector<std::int64_t> numbers_, scratch_;
};

}  // namespace fermata

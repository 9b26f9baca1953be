// What a bind reads of the records but scalars, and what their key says already: sizes, attributes, layouts of leaves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/node.h"

namespace fermata {

class RecordGeometry {
 public:
  void remember(std::span<const Node* const> records);
  /// Whether other records, of the same key, have what is remembered.
  bool is_that_of(std::span<const Node* const> records);

 private:
  std::vector<std::int64_t> numbers_, scratch_;
};

}  // namespace fermata

// Evaluation of unpack. Control flow itself has no reference: its functions are not part of the graph.
#include "ir/reference_element.h"

namespace fermata {

ReferenceTensor unpack_bytes(const GraphNode& node, const ReferenceTensor& bytes) {
  ElementWriter result(node.dtype, node.shape, node.dtype);
  const auto width = static_cast<std::int64_t>(byte_size(node.dtype));
  const std::int64_t count = element_count(node.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const auto at = static_cast<std::size_t>(node.attributes[0] + i * width + k);
      bits |= static_cast<std::uint64_t>(bytes.integers[at] & 0xff) << (8 * k);
    }
    result.set(i, bits);
  }
  return result.take();
}

}  // namespace fermata

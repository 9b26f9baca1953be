// Evaluation of unpack. Control flow itself has no reference: its functions are not part of the graph.
#include "ir/ops/control.h"
#include "ir/reference_element.h"

namespace fermata::ops {

ReferenceTensor Unpack::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const ReferenceTensor& bytes = *operands[0];
  const std::int64_t offset = attributes_of<Unpack>(node).offset.value;
  ElementWriter result(node.dtype, node.shape, node.dtype);
  const auto width = static_cast<std::int64_t>(byte_size(node.dtype));
  const std::int64_t count = element_count(node.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    for (std::int64_t k = 0; k < width; ++k) {
      const auto at = static_cast<std::size_t>(offset + i * width + k);
      bits |= static_cast<std::uint64_t>(bytes.integers[at] & 0xff) << (8 * k);
    }
    result.set(i, bits);
  }
  return result.take();
}

}  // namespace fermata::ops

// See position_error.h.
#include "ir/position_error.h"

#include <fmt/format.h>

#include <vector>

#include "ir/error.h"

namespace fermata {

void throw_position_error(Op op, std::int64_t axis, std::span<const TensorType> operands, std::string_view position,
                          std::int64_t element, std::source_location where) {
  static constexpr std::string_view kLabels[] = {"x", "index", "source"};
  const std::int64_t size = operands[0].shape[static_cast<std::size_t>(axis)];
  std::vector<ErrorOperand> described;
  for (std::size_t i = 0; i < operands.size(); ++i)
    described.push_back({kLabels[i], to_string(operands[i].dtype, operands[i].shape), ""});
  described[0].note = fmt::format("axis {} is {}", axis, size);
  described[1].note = fmt::format("element {} is {}", element, position);
  throw IndexError(
      1204, format_error(1204, "IndexError",
                         fmt::format("{}: position {} leaves axis {} of size {}", name(op), position, axis, size),
                         described, where));
}

}  // namespace fermata

// See control.h.
#include "ir/ops/control.h"

#include <fmt/format.h>

namespace fermata::ops {

TensorType Unpack::infer(const InferCall& call) const {
  const TensorType& bytes = call.operand(0);
  if (bytes.dtype != DType::u8 || bytes.shape.rank() != 1)
    call.fail<DTypeError>(1101, "DTypeError", "takes a vector of bytes (u8)");
  const std::int64_t count = check_shape(name(call.op), call.wanted.shape, call.wanted.dtype, call.where);
  const std::int64_t from = offset.value, size = count * static_cast<std::int64_t>(byte_size(call.wanted.dtype));
  if (from < 0 || from > bytes.shape[0] || size > bytes.shape[0] - from)
    call.fail<ShapeError>(1006, "ShapeError", fmt::format("{} bytes from {} leave the operand", size, from));
  return {call.wanted.dtype, call.wanted.shape};
}

Example<Unpack> Unpack::example() {
  static constexpr std::int64_t kSizes[] = {3};
  return {{{DType::u8, Shape{64}}}, {.offset = {8}, .shape = {kSizes}, .dtype = {DType::i32}}};
}

}  // namespace fermata::ops

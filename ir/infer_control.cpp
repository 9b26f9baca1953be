// Inference of unpack and after. The results of control flow are what the functions say: their type is an argument.
#include <fmt/format.h>

#include "ir/infer_call.h"

namespace fermata {

TensorType infer_unpack(const InferCall& call) {
  const TensorType& bytes = call.operand(0);
  if (bytes.dtype != DType::u8 || bytes.shape.rank() != 1)
    call.fail<DTypeError>(1101, "DTypeError", "takes a vector of bytes (u8)");
  const std::int64_t count = check_shape(name(call.op), call.wanted.shape, call.wanted.dtype, call.where);
  const std::int64_t offset = call.attributes[0],
                     size = count * static_cast<std::int64_t>(byte_size(call.wanted.dtype));
  if (offset < 0 || offset > bytes.shape[0] || size > bytes.shape[0] - offset)
    call.fail<ShapeError>(1006, "ShapeError", fmt::format("{} bytes from {} leave the operand", size, offset));
  return {call.wanted.dtype, call.wanted.shape};
}

TensorType infer_after(const InferCall& call) { return call.operand(0); }

}  // namespace fermata

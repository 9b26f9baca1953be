// See packed_bits.h.
#include "frontend/tools/io/packed_bits.h"

#include "frontend/tensor/host_elements.h"
#include "frontend/tools/io/file.h"
#include "ir/shape.h"
#include "ir/small_dtypes.h"

namespace fermata {

std::size_t packed_bytes(DType dtype, std::size_t count) {
  const std::size_t in_byte = 8 / bit_width(dtype);
  return count / in_byte + (count % in_byte != 0);
}

Tensor unpacked_elements(std::string_view packed, DType dtype, const Shape& shape) {
  void* data = nullptr;
  Tensor tensor = new_tensor(dtype, shape, &data);
  const auto count = static_cast<std::size_t>(element_count(shape));
  const unsigned bits = bit_width(dtype), in_byte = 8 / bits, mask = (1u << bits) - 1;
  const unsigned sign = info(dtype).kind == DTypeKind::small_signed ? 1u << (bits - 1) : 0;
  auto* const to = static_cast<unsigned char*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned element = static_cast<unsigned char>(packed[i / in_byte]) >> (i % in_byte * bits) & mask;
    to[i] = static_cast<unsigned char>((element ^ sign) - sign);
  }
  return tensor;
}

std::string packed_elements(const Tensor& x, Location where) {
  const HostElements elements(x, "packing", where);
  const auto count = static_cast<std::size_t>(elements.count());
  const unsigned bits = bit_width(x.dtype()), in_byte = 8 / bits, mask = (1u << bits) - 1;
  std::string packed(packed_bytes(x.dtype(), count), '\0');
  const auto* const from = static_cast<const unsigned char*>(elements.data());
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned byte = static_cast<unsigned char>(packed[i / in_byte]) | (from[i] & mask) << (i % in_byte * bits);
    packed[i / in_byte] = static_cast<char>(byte);
  }
  return packed;
}

}  // namespace fermata

// See fermata/dlpack.h.
#include "fermata/dlpack.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/values.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/infer.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>

namespace fermata {
namespace {

constexpr std::uint8_t kBoolCode = 6;  // kDLBool, which headers before version 0.8 do not name

DLDataType type_of_dtype(DType t) {
  const auto bits = static_cast<std::uint8_t>(byte_size(t) * 8);
  switch (info(t).kind) {
    case DTypeKind::boolean: return {kBoolCode, 8, 1};
    case DTypeKind::unsigned_integer: return {kDLUInt, bits, 1};
    case DTypeKind::signed_integer: return {kDLInt, bits, 1};
    case DTypeKind::complex: return {kDLComplex, bits, 1};
    default: return {static_cast<std::uint8_t>(t == DType::bf16 ? kDLBfloat : kDLFloat), bits, 1};
  }
}

/// The dtype, or nothing if there is none.
std::optional<DType> dtype_of_type(const DLDataType& type) {
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    if (is_quantized(t)) continue;
    const DLDataType ours = type_of_dtype(t);
    if (ours.code == type.code && ours.bits == type.bits && ours.lanes == type.lanes) return t;
  }
  return std::nullopt;
}

void* address_of(const Tensor& x, Location where) {
  switch (x.dtype()) {
// clang-format off
#define FERMATA_DTYPE(enumerator, name, type, bytes, kind) case DType::enumerator: return x.data<type>(where);
#include "ir/dtypes.def"
    // clang-format on
  }
  return nullptr;
}

/// What an exported tensor keeps alive.
struct Exported {
  Tensor tensor;
  std::vector<std::int64_t> sizes;
  DLManagedTensor managed{};
};

struct CallDeleter {
  void operator()(DLManagedTensor* m) const {
    if (m->deleter != nullptr) m->deleter(m);
  }
};

/// The elements in row-major order.
std::vector<std::byte> gathered(const DLTensor& from, std::span<const std::int64_t> sizes, std::size_t bytes) {
  const std::int64_t count = element_count(sizes);
  std::vector<std::byte> elements(static_cast<std::size_t>(count) * bytes);
  const std::vector<std::int64_t> dense = [&] {
    const Shape strides = dense_strides(sizes);
    return std::vector<std::int64_t>(strides.begin(), strides.end());
  }();
  const std::span<const std::int64_t> strides =
      from.strides != nullptr ? std::span<const std::int64_t>(from.strides, sizes.size()) : dense;
  const auto* const base = static_cast<const std::byte*>(from.data) + from.byte_offset;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t offset = 0, rest = i;
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      offset += rest % sizes[axis] * strides[axis];
      rest /= sizes[axis];
    }
    std::memcpy(elements.data() + static_cast<std::size_t>(i) * bytes, base + offset * static_cast<std::int64_t>(bytes),
                bytes);
  }
  return elements;
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& x, Location where) {
  require_defined("to_dlpack", x, where);
  if (is_quantized(x.dtype()))
    throw DTypeError(1101,
                     format_error(1101, "DTypeError", fmt::format("to_dlpack: no counterpart of {}", name(x.dtype())),
                                  describe(x), where));
  if (x.requires_grad())
    throw GradientError(1720, format_error(1720, "GradientError", "to_dlpack: what others do with x has no gradient",
                                           describe(x), where, "detach() it"));
  auto exported = std::make_unique<Exported>();
  void* address = nullptr;
  try {
    exported->tensor = x;
    address = address_of(x, where);
  } catch (const ValueError&) {  // a view with gaps
    exported->tensor = copy(x, where);
    address = address_of(exported->tensor, where);
  }
  const Shape shape = x.shape();
  exported->sizes.assign(shape.begin(), shape.end());
  DLTensor& t = exported->managed.dl_tensor;
  t.data = address;
  t.device = {kDLCPU, 0};
  t.ndim = static_cast<int>(exported->sizes.size());
  t.dtype = type_of_dtype(x.dtype());
  t.shape = exported->sizes.data();
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](DLManagedTensor* m) { delete static_cast<Exported*>(m->manager_ctx); };
  return &exported.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed, Location where) {
  const std::unique_ptr<DLManagedTensor, CallDeleter> owned(managed);
  const DLTensor& t = managed->dl_tensor;
  if (t.device.device_type != kDLCPU)
    throw DeviceError(1402, format_error(1402, "DeviceError", "from_dlpack: the tensor is not on the CPU", {}, where));
  const auto dtype = dtype_of_type(t.dtype);
  if (!dtype)
    throw DTypeError(1101,
                     format_error(1101, "DTypeError",
                                  fmt::format("from_dlpack: no counterpart of type code {} with {} bits and {} lanes",
                                              t.dtype.code, t.dtype.bits, t.dtype.lanes),
                                  {}, where));
  const std::span<const std::int64_t> sizes(t.shape, static_cast<std::size_t>(t.ndim));
  check_shape("from_dlpack", sizes, *dtype, where);
  const std::vector<std::byte> elements = gathered(t, sizes, byte_size(*dtype));
  return from_buffer(elements.data(), *dtype, sizes, where);
}

}  // namespace fermata

#else

namespace fermata {
namespace {
[[noreturn]] void throw_without(const char* function, Location where) {
  throw UnsupportedError(
      2023, format_error(2023, "UnsupportedError",
                         fmt::format("{}: this engine was built without <dlpack/dlpack.h>", function), {}, where,
                         "install libdlpack-dev and build again"));
}
}  // namespace
DLManagedTensor* to_dlpack(const Tensor&, Location where) { throw_without("to_dlpack", where); }
Tensor from_dlpack(DLManagedTensor*, Location where) { throw_without("from_dlpack", where); }
}  // namespace fermata
#endif

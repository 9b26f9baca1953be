// See fermata/dlpack.h.
#include "fermata/dlpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/values.h"
#include "frontend/ops/calls.h"
#include "frontend/tools/io/file.h"
#include "ir/error.h"
#include "ir/infer.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>

namespace fermata {
namespace {

constexpr std::uint8_t kBoolCode = 6;  // kDLBool, which headers before version 0.8 do not name

// Of floats of 8 bits, as version 1.1 numbers them.
constexpr std::uint8_t kFloat8E4M3FN = 10, kFloat8E4M3FNUZ = 11, kFloat8E5M2 = 12, kFloat8E5M2FNUZ = 13,
                       kFloat8E8M0FNU = 14;

/// Bits 0 for dtypes that have no counterpart. Elements of 4 and 2 bits are packed in DLPack, and bytes here.
DLDataType type_of_dtype(DType t) {
  switch (t) {
    case DType::f8e4m3fn: return {kFloat8E4M3FN, 8, 1};
    case DType::f8e4m3fnuz: return {kFloat8E4M3FNUZ, 8, 1};
    case DType::f8e5m2: return {kFloat8E5M2, 8, 1};
    case DType::f8e5m2fnuz: return {kFloat8E5M2FNUZ, 8, 1};
    case DType::f8e8m0fnu: return {kFloat8E8M0FNU, 8, 1};
    default: break;
  }
  if (is_quantized(t) || is_small(t)) return {0, 0, 0};
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
    const DLDataType ours = type_of_dtype(t);
    if (ours.bits != 0 && ours.code == type.code && ours.bits == type.bits && ours.lanes == type.lanes) return t;
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

[[noreturn]] void throw_invalid(const char* what, Location where) {
  throw ValueError(1344, format_error(1344, "ValueError", fmt::format("from_dlpack: {}", what), {}, where));
}

/// As a number: another program may have devices that this header does not name.
std::int32_t device_type(const DLDevice& device) {
  std::int32_t type = 0;
  static_assert(sizeof(type) == sizeof(device.device_type));
  std::memcpy(&type, &device.device_type, sizeof(type));
  return type;
}

/// The sizes; ValueError FM1344 where what is given cannot be a tensor.
std::span<const std::int64_t> checked_sizes(const DLTensor& t, DType dtype, Location where) {
  if (t.ndim < 0) throw_invalid("the number of axes is negative", where);
  if (t.ndim > static_cast<int>(kMaxRank))
    throw ShapeError(
        1003, format_error(1003, "ShapeError", fmt::format("from_dlpack: {} axes, more than {}", t.ndim, kMaxRank), {},
                           where));
  if (t.ndim > 0 && t.shape == nullptr) throw_invalid("the tensor has axes but no sizes", where);
  const std::span<const std::int64_t> sizes(t.shape, static_cast<std::size_t>(t.ndim));
  const std::int64_t count = check_shape("from_dlpack", sizes, dtype, where);
  if (count == 0) return sizes;
  if (t.data == nullptr) throw_invalid("the tensor has elements but no data", where);
  std::int64_t reach = 0, step = 0;  // how many bytes the last element may be away from the first
  bool overflow = t.byte_offset > std::uint64_t{INT64_MAX};
  for (std::size_t axis = 0; t.strides != nullptr && axis < sizes.size(); ++axis) {
    overflow |= t.strides[axis] == INT64_MIN || __builtin_mul_overflow(std::abs(t.strides[axis]), sizes[axis], &step);
    overflow |= __builtin_add_overflow(reach, step, &reach);
  }
  overflow |= __builtin_mul_overflow(reach, static_cast<std::int64_t>(byte_size(dtype)), &reach);
  if (overflow) throw_invalid("the strides exceed the memory", where);
  return sizes;
}

/// The elements in row-major order.
void gather(const DLTensor& from, std::span<const std::int64_t> sizes, std::size_t bytes, std::byte* to) {
  const auto count = static_cast<std::size_t>(element_count(sizes));
  if (count == 0) return;
  const auto* const base = static_cast<const std::byte*>(from.data) + from.byte_offset;
  const Shape dense = dense_strides(sizes);
  if (from.strides == nullptr || std::ranges::equal(std::span(from.strides, sizes.size()), dense)) {
    std::memcpy(to, base, count * bytes);
    return;
  }
  const std::span<const std::int64_t> strides(from.strides, sizes.size());
  for (std::size_t i = 0; i < count; ++i) {
    std::int64_t offset = 0, rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      offset += rest % sizes[axis] * strides[axis];
      rest /= sizes[axis];
    }
    std::memcpy(to + i * bytes, base + offset * static_cast<std::int64_t>(bytes), bytes);
  }
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& x, Location where) {
  require_defined("to_dlpack", x, where);
  if (type_of_dtype(x.dtype()).bits == 0)
    throw DTypeError(
        1101,
        format_error(1101, "DTypeError", fmt::format("to_dlpack: no counterpart of {}", name(x.dtype())), describe(x),
                     where, is_small(x.dtype()) ? "pack_elements() returns bytes that others can read" : ""));
  if (x.requires_grad())
    throw GradientError(1720, format_error(1720, "GradientError",
                                           "to_dlpack: x requires gradients, which other libraries do not propagate",
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
  if (managed == nullptr) throw_invalid("the tensor is null", where);
  const std::unique_ptr<DLManagedTensor, CallDeleter> owned(managed);
  const DLTensor& t = managed->dl_tensor;
  if (device_type(t.device) != kDLCPU)
    throw DeviceError(1402, format_error(1402, "DeviceError", "from_dlpack: the tensor is not on the CPU", {}, where));
  const auto dtype = dtype_of_type(t.dtype);
  if (!dtype)
    throw DTypeError(1101,
                     format_error(1101, "DTypeError",
                                  fmt::format("from_dlpack: no counterpart of type code {} with {} bits and {} lanes",
                                              t.dtype.code, t.dtype.bits, t.dtype.lanes),
                                  {}, where));
  const std::span<const std::int64_t> sizes = checked_sizes(t, *dtype, where);
  void* data = nullptr;
  Tensor x = new_tensor(*dtype, Shape(sizes), &data);
  auto* const elements = static_cast<std::byte*>(data);
  gather(t, sizes, byte_size(*dtype), elements);
  if (*dtype == DType::boolean)
    for (std::byte& b : std::span(elements, static_cast<std::size_t>(element_count(sizes))))
      b = std::byte{b != std::byte{0}};
  return x;
}

}  // namespace fermata

#else

namespace fermata {
namespace {
[[noreturn]] void throw_without(const char* function, Location where) {
  throw UnsupportedError(
      2023, format_error(2023, "UnsupportedError",
                         fmt::format("{}: this engine was built without <dlpack/dlpack.h>", function), {}, where,
                         "install libdlpack-dev and rebuild"));
}
}  // namespace
DLManagedTensor* to_dlpack(const Tensor&, Location where) { throw_without("to_dlpack", where); }
Tensor from_dlpack(DLManagedTensor*, Location where) { throw_without("from_dlpack", where); }
}  // namespace fermata
#endif

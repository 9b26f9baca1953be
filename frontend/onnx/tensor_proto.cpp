// See tensor_proto.h.
#include "frontend/onnx/tensor_proto.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>

#include "frontend/tools/io/file.h"
#include "frontend/tools/io/packed_bits.h"
#include "ir/error.h"
#include "ir/small_dtypes.h"

namespace fermata::onnx {
namespace {

using ::onnx::TensorProto;
static_assert(std::endian::native == std::endian::little, "raw data is little-endian");

/// TensorProto.DataType by dtype, in the order of ir/dtypes.def; quantized tensors have no number.
constexpr std::array<int, kDTypeCount> kCodes{9,  2, 4, 12, 13, 3,  5,  6,  7,  10, 16, 1,  11, 14,
                                              15, 0, 0, 17, 19, 18, 20, 23, 22, 21, 26, 25, 24};

constexpr std::size_t kMostAxes = 16;

/// The elements of the field of a dtype, one after the other, in the storage type of the dtype.
template <class Field> Tensor from_field(const Field& field, DType dtype, const Shape& shape) {
  void* data = nullptr;
  Tensor tensor = new_tensor(dtype, shape, &data);
  const std::size_t bytes = byte_size(dtype);
  for (int i = 0; i < field.size(); ++i) {
    const auto value = field.Get(i);  // of a type at least as wide, whose low bytes are the element
    std::memcpy(static_cast<char*>(data) + static_cast<std::size_t>(i) * bytes, &value, bytes);
  }
  return tensor;
}

std::optional<std::size_t> number_of(const std::string& text) {
  std::size_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void throw_damaged(const std::string& path, std::string_view what, std::source_location where) {
  throw FileError(2302, format_error(2302, "FileError", fmt::format("onnx: {}: {}", path, what), {}, where));
}

std::optional<DType> dtype_of_code(std::int64_t code) {
  for (std::size_t i = 0; i < kDTypeCount; ++i)
    if (code != 0 && kCodes[i] == code) return static_cast<DType>(i);
  return std::nullopt;
}

int code_of_dtype(DType dtype) { return kCodes[static_cast<std::size_t>(dtype)]; }

Tensor TensorReader::read(TensorProto& proto) {
  const auto fail = [&](std::string_view what) {
    throw_damaged(path_, fmt::format("tensor '{}' {}", proto.name().substr(0, 80), what), where_);
  };
  const std::optional<DType> dtype = dtype_of_code(proto.data_type());
  if (!dtype)
    throw UnsupportedError(2306, format_error(2306, "UnsupportedError",
                                              fmt::format("onnx: {}: tensor '{}' has elements of type {}", path_,
                                                          proto.name().substr(0, 80), proto.data_type()),
                                              {}, where_));
  if (static_cast<std::size_t>(proto.dims_size()) > kMostAxes) fail(fmt::format("has {} axes", proto.dims_size()));
  Shape shape;
  std::size_t count = 1;
  bool is_empty = false;
  for (const std::int64_t size : proto.dims()) {
    if (size < 0) fail(fmt::format("has an axis of size {}", size));
    is_empty = is_empty || size == 0;
    shape.push_back(size);
  }
  for (const std::int64_t size : shape) {
    if (is_empty) break;
    if (count > std::numeric_limits<std::int64_t>::max() / 16 / static_cast<std::size_t>(size)) fail("is too large");
    count *= static_cast<std::size_t>(size);
  }
  if (is_empty) count = 0;
  const bool is_packed = bit_width(*dtype) < 8;  // several elements in a byte
  const std::size_t bytes = is_packed ? packed_bytes(*dtype, count) : count * byte_size(*dtype);
  const auto expect = [&](std::size_t found, std::size_t wanted) {
    if (found != wanted) fail(fmt::format("is {} and holds {} elements", to_string(*dtype, shape), found));
  };
  if (proto.data_location() == TensorProto::EXTERNAL) {
    if (is_packed) fail(fmt::format("has elements of {} bits in another file", bit_width(*dtype)));
    return external(proto, *dtype, shape, bytes);
  }
  if (proto.has_raw_data()) {
    if (proto.raw_data().size() != bytes)
      fail(fmt::format("is {} and holds {} bytes", to_string(*dtype, shape), proto.raw_data().size()));
    if (is_packed) return unpacked_elements(proto.raw_data(), *dtype, shape);
    const std::shared_ptr<const std::string> owner(proto.release_raw_data());
    return tensor_over(owner, *owner, *dtype, shape);
  }
  const auto of = [&](const auto& field, std::size_t in_one = 1) {
    expect(static_cast<std::size_t>(field.size()) / in_one, count);
    return from_field(field, *dtype, shape);
  };
  if (is_packed) {
    expect(static_cast<std::size_t>(proto.int32_data_size()), bytes);
    std::string packed;
    for (const std::int32_t pair : proto.int32_data()) packed.push_back(static_cast<char>(pair));
    return unpacked_elements(packed, *dtype, shape);
  }
  switch (*dtype) {
    case DType::f32: return of(proto.float_data());
    case DType::f64: return of(proto.double_data());
    case DType::i64: return of(proto.int64_data());
    case DType::u32:
    case DType::u64: return of(proto.uint64_data());
    case DType::c64:
    case DType::c128: {
      // Pairs of numbers: as real ones with an axis more, which has two.
      const bool is_single = *dtype == DType::c64;
      const auto found = static_cast<std::size_t>(is_single ? proto.float_data_size() : proto.double_data_size());
      if (found != 2 * count) fail(fmt::format("is {} and holds {} numbers", to_string(*dtype, shape), found));
      const auto text = is_single ? std::string(reinterpret_cast<const char*>(proto.float_data().data()), bytes)
                                  : std::string(reinterpret_cast<const char*>(proto.double_data().data()), bytes);
      const auto owner = std::make_shared<const std::string>(text);
      return tensor_over(owner, *owner, *dtype, shape);
    }
    default: return of(proto.int32_data());
  }
}

Tensor TensorReader::external(const TensorProto& proto, DType dtype, const Shape& shape, std::size_t bytes) {
  namespace fs = std::filesystem;
  const auto fail = [&](std::string_view what) {
    throw_damaged(path_, fmt::format("tensor '{}' {}", proto.name().substr(0, 80), what), where_);
  };
  std::string location;
  std::size_t offset = 0;
  std::optional<std::size_t> length;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    const auto number = number_of(entry.value());
    if (!number) fail(fmt::format("has an invalid {}: '{}'", entry.key(), entry.value().substr(0, 40)));
    (entry.key() == "offset" ? offset : length.emplace()) = *number;
  }
  auto& file = files_[location];
  if (file == nullptr) {
    const fs::path folder = fs::path(path_).parent_path();
    std::error_code error;
    const fs::path home = fs::canonical(folder.empty() ? "." : folder, error);
    const fs::path whole = fs::weakly_canonical(home / location, error);
    const bool is_below = !location.empty() && location.find('\0') == std::string::npos && !error &&
                          fs::path(location).is_relative() &&
                          std::mismatch(home.begin(), home.end(), whole.begin(), whole.end()).first == home.end();
    if (!is_below) fail(fmt::format("is in '{}', which is not a file in the model's folder", location.substr(0, 80)));
    file = MappedFile::open("onnx", whole.string(), where_);
  }
  const std::string_view all = file->bytes();
  if (length.value_or(bytes) != bytes) fail(fmt::format("is {} and has {} bytes", to_string(dtype, shape), *length));
  if (offset > all.size() || bytes > all.size() - offset)
    fail(fmt::format("is at bytes {} to {} of '{}', which has {}", offset, offset + bytes, location, all.size()));
  return tensor_over(file, all.substr(offset, bytes), dtype, shape);
}

}  // namespace fermata::onnx

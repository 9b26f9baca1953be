// See npy_format.h.
#include "frontend/tools/io/npy_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>

#include "frontend/tools/io/file.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;

/// 'f4' and the like; nothing for dtypes that NumPy has not.
std::optional<std::string> type_code(DType dtype) {
  if (dtype == DType::bf16) return std::nullopt;
  switch (info(dtype).kind) {
    case DTypeKind::boolean: return "b1";
    case DTypeKind::unsigned_integer: return fmt::format("u{}", byte_size(dtype));
    case DTypeKind::signed_integer: return fmt::format("i{}", byte_size(dtype));
    case DTypeKind::floating: return fmt::format("f{}", byte_size(dtype));
    case DTypeKind::complex: return fmt::format("c{}", byte_size(dtype));
    default: return std::nullopt;
  }
}
std::optional<DType> dtype_of_code(std::string_view code) {
  for (std::size_t i = 0; i < kDTypeCount; ++i)
    if (type_code(static_cast<DType>(i)) == code) return static_cast<DType>(i);
  return std::nullopt;
}

/// Reads the header of one file; throws if it is invalid.
class HeaderReader {
 public:
  HeaderReader(std::string_view function, const std::string& path, std::string_view bytes, Location where)
      : function_(function), path_(path), bytes_(bytes), where_(where) {}

  NpyHeader read() const {
    if (!bytes_.starts_with(kMagic) || bytes_.size() < 12) fail("is not a .npy file");
    const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes_[i])); };
    const std::size_t version = byte(6);
    if (version < 1 || version > 3) fail(fmt::format("has format version {}, not 1 to 3", version));
    const std::size_t begin = version == 1 ? 10 : 12;
    const std::size_t length = byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
    if (length > bytes_.size() - begin) fail("ends within its header");
    const std::string_view text = bytes_.substr(begin, length);

    NpyHeader header{};
    header.data_begin = begin + length;
    const std::string_view descr = value_of(text, "descr");
    // "'<f4'": '|' stands for single bytes, '=' for the writer's own order, which NumPy does not put into files.
    if (descr.size() < 4 || descr.front() != '\'') refuse(descr);
    const std::string_view code = descr.substr(2, descr.find('\'', 1) - 2);
    const std::optional<DType> dtype = dtype_of_code(code);
    if (!dtype || std::string_view("<>|").find(descr[1]) == std::string_view::npos) refuse(descr);
    header.dtype = *dtype;
    header.big_endian = descr[1] == '>';
    header.fortran_order = value_of(text, "fortran_order").starts_with("True");
    header.shape = read_shape(value_of(text, "shape"));
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { throw_malformed(function_, path_, what, where_); }
  [[noreturn]] void refuse(std::string_view descr) const {
    const std::string what = fmt::format("{}: {}: cannot read elements of type {}", function_, path_,
                                         descr.substr(0, std::min(descr.find(", 'fortran_order'"), std::size_t{40})));
    throw UnsupportedError(2003, format_error(2003, "UnsupportedError", what, {}, where_));
  }
  /// What follows "'key': " up to the end of the header.
  std::string_view value_of(std::string_view text, std::string_view key) const {
    const std::string quoted = fmt::format("'{}':", key);
    const std::size_t at = text.find(quoted);
    if (at == std::string_view::npos) fail(fmt::format("has no {} in its header", key));
    text.remove_prefix(at + quoted.size());
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    return text;
  }
  /// "(3, 4)", "(3,)" or "()".
  Shape read_shape(std::string_view text) const {
    if (!text.starts_with('(')) fail("has a header without a shape");
    text.remove_prefix(1);
    std::vector<std::int64_t> sizes;
    while (true) {
      text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
      if (text.starts_with(')')) break;
      std::int64_t size = 0;
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), size);
      if (error != std::errc()) fail("has a header without a shape");
      sizes.push_back(size);
      text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
    }
    return Shape(check_sizes(sizes));
  }
  std::span<const std::int64_t> check_sizes(std::span<const std::int64_t> sizes) const {
    check_shape(function_, sizes, DType::f64, where_);
    return sizes;
  }

  std::string_view function_;
  const std::string& path_;
  std::string_view bytes_;
  Location where_;
};

}  // namespace

NpyHeader read_npy_header(std::string_view function, const std::string& path, std::string_view bytes, Location where) {
  return HeaderReader(function, path, bytes, where).read();
}

std::string npy_head(std::string_view function, const Tensor& x, Location where) {
  const std::optional<std::string> code = type_code(x.dtype());
  if (!code) throw_dtype(function, x.dtype(), "NumPy lacks this dtype, or writing it is not supported", where);
  std::string sizes;
  for (const std::int64_t size : x.shape()) sizes += fmt::format("{}, ", size);
  if (x.rank() > 1) sizes.resize(sizes.size() - 2);
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   byte_size(x.dtype()) == 1 ? '|' : '<', *code, sizes);
  const std::size_t before = kMagic.size() + 4;
  header.append(kAlignment - 1 - (before + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string head(kMagic);
  head += {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return head + header;
}

void copy_transposed(const Shape& shape, std::size_t width, const char* from, char* to) {
  Shape index = shape, strides = shape;
  std::int64_t stride = 1;
  for (unsigned i = 0; i < shape.rank(); ++i) {
    index[i] = 0;
    strides[i] = stride;
    stride *= shape[i];
  }
  const std::int64_t count = element_count(shape);
  std::int64_t offset = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    std::memcpy(to + static_cast<std::size_t>(n) * width, from + static_cast<std::size_t>(offset) * width, width);
    for (unsigned axis = shape.rank(); axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

void settle_elements(const NpyHeader& header, char* elements, std::size_t bytes) {
  if (header.big_endian)
    for (std::size_t part = byte_size(real_dtype(header.dtype)), at = 0; at != bytes; at += part)
      std::reverse(elements + at, elements + at + part);
  if (header.dtype == DType::boolean)
    for (char* element = elements; element != elements + bytes; ++element) *element = *element != 0;
}

}  // namespace fermata

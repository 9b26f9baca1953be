// See safetensors_header.h. Whatever a header says is checked against the bytes that are there before it is used.
#include "frontend/tools/io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "frontend/tools/io/file.h"
#include "frontend/tools/io/json.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are mapped as they lie in the file");
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // of the reference implementation
constexpr std::size_t kShownName = 80;

struct ForeignDType {
  std::string_view code;
  std::size_t bits;
};
/// What the format has and Fermata has not.
constexpr std::array kForeign{ForeignDType{"F6_E2M3", 6}, ForeignDType{"F6_E3M2", 6}};

std::optional<DType> dtype_of_code(std::string_view code) {
  for (std::size_t i = 0; i < kDTypeCount; ++i)
    if (safetensors_code(static_cast<DType>(i)) == code) return static_cast<DType>(i);
  return std::nullopt;
}
std::optional<std::size_t> bits_of_code(std::string_view code) {
  if (const auto dtype = dtype_of_code(code)) return bit_width(*dtype);
  for (const ForeignDType& t : kForeign)
    if (t.code == code) return t.bits;
  return std::nullopt;
}

/// Takes the events of the header's JSON. The header is an object of objects, nested no deeper than the lists of an
/// entry.
class HeaderBuilder {
 public:
  using Kind = JsonEvent::Kind;
  HeaderBuilder(std::string_view function, const std::string& path, std::source_location where)
      : function_(function), path_(path), where_(where) {}

  void take(const JsonEvent& event) {
    switch (depth_) {
      case 0:
        if (event.kind != Kind::begin_object) fail("has a header that is not an object");
        ++depth_;
        return;
      case 1: return take_name(event);
      case 2: return in_metadata_ ? take_metadata(event) : take_field(event);
      default: return take_number(event);
    }
  }
  SafetensorsHeader finish(std::size_t begin, std::size_t file_bytes) {
    std::vector<std::pair<SafetensorsEntry*, const std::string*>> in_order;
    for (auto& [name, entry] : header_.entries) {
      entry.begin += begin, entry.end += begin;
      in_order.emplace_back(&entry, &name);
    }
    std::stable_sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
    });
    std::size_t at = begin;
    for (const auto& [entry, name] : in_order) {
      name_ = *name;
      if (entry->begin != at) fail_entry(entry->begin < at ? "overlaps another tensor" : "leaves a gap before it");
      at = entry->end;
    }
    if (at != file_bytes) fail(fmt::format("has {} bytes of elements, not {}", file_bytes - begin, at - begin));
    return std::move(header_);
  }
  /// Of the elements; offsets beyond are damage.
  std::size_t element_bytes = 0;

 private:
  [[noreturn]] void fail(std::string_view what) const { throw_malformed(function_, path_, what, where_); }
  [[noreturn]] void fail_entry(std::string_view what) const {
    fail(fmt::format("tensor '{}' {}", name_.substr(0, kShownName), what));
  }

  void take_name(const JsonEvent& event) {
    if (event.kind == Kind::end_object) {
      depth_ = 0;
    } else if (event.kind == Kind::key) {
      name_ = event.text;
      in_metadata_ = name_ == "__metadata__";
      if (!names_.insert(name_).second) fail_entry("occurs twice");
    } else if (event.kind == Kind::begin_object) {
      depth_ = 2;
      entry_ = {};
      offsets_.clear(), sizes_.clear();
      has_shape_ = has_offsets_ = false;
    } else {
      fail_entry("is not an object");
    }
  }

  void take_metadata(const JsonEvent& event) {
    if (event.kind == Kind::end_object)
      depth_ = 1;
    else if (event.kind == Kind::key)
      field_ = event.text;
    else if (event.kind != Kind::text)
      fail(fmt::format("has metadata '{}' that is not a string", field_.substr(0, kShownName)));
    else if (!header_.metadata.emplace(field_, event.text).second)
      fail(fmt::format("has metadata '{}' twice", field_.substr(0, kShownName)));
  }

  void take_field(const JsonEvent& event) {
    if (event.kind == Kind::end_object) {
      depth_ = 1;
      add_entry();
    } else if (event.kind == Kind::key) {
      field_ = event.text;
      if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets")
        fail_entry(fmt::format("has an unknown field '{}'", field_.substr(0, kShownName)));
    } else if (field_ == "dtype" && event.kind == Kind::text) {
      if (!entry_.code.empty()) fail_entry("has two dtypes");
      entry_.code = event.text.substr(0, kShownName);
    } else if (field_ != "dtype" && event.kind == Kind::begin_array) {
      bool& seen = field_ == "shape" ? has_shape_ : has_offsets_;
      if (std::exchange(seen, true)) fail_entry(fmt::format("has two lists '{}'", field_));
      depth_ = 3;
    } else {
      fail_entry(fmt::format("has no valid {}", field_));
    }
  }

  void take_number(const JsonEvent& event) {
    std::vector<std::uint64_t>& list = field_ == "shape" ? sizes_ : offsets_;
    if (event.kind == Kind::end_array)
      depth_ = 2;
    else if (event.kind != Kind::natural)
      fail_entry(fmt::format("has a {} that is not a natural number", field_ == "shape" ? "size" : "data offset"));
    else if (list.size() == kMaxRank)
      fail_entry(fmt::format("has more than {} axes", kMaxRank));
    else
      list.push_back(event.natural);
  }

  void add_entry() {
    if (entry_.code.empty() || !has_shape_ || offsets_.size() != 2)
      fail_entry("requires a dtype, a shape and two data offsets");
    const auto bits = bits_of_code(entry_.code);
    if (!bits) fail_entry(fmt::format("has an unknown dtype '{}'", entry_.code));
    const bool is_empty = std::find(sizes_.begin(), sizes_.end(), 0u) != sizes_.end();
    std::uint64_t bytes = is_empty ? 0 : *bits;
    for (const std::uint64_t size : sizes_) {
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
          (!is_empty && __builtin_mul_overflow(bytes, size, &bytes)))
        fail_entry("has a size that overflows 64 bits");
      entry_.shape.push_back(static_cast<std::int64_t>(size));
    }
    if (offsets_[0] > offsets_[1] || offsets_[1] > element_bytes) fail_entry("is outside the file");
    if (bytes % 8 != 0 || offsets_[1] - offsets_[0] != bytes / 8)
      fail_entry(fmt::format("has {} bytes, not {}", offsets_[1] - offsets_[0], bytes / 8));
    entry_.begin = offsets_[0], entry_.end = offsets_[1];
    entry_.dtype = dtype_of_code(entry_.code);
    header_.entries.emplace(name_, std::move(entry_));
  }

  std::string_view function_;
  const std::string& path_;
  std::source_location where_;
  SafetensorsHeader header_;
  std::set<std::string> names_;
  int depth_ = 0;
  bool in_metadata_ = false, has_shape_ = false, has_offsets_ = false;
  std::string name_, field_;
  SafetensorsEntry entry_;
  std::vector<std::uint64_t> sizes_, offsets_;
};

}  // namespace

std::string_view safetensors_code(DType dtype) {
  switch (dtype) {
    case DType::boolean: return "BOOL";
    case DType::u8: return "U8";
    case DType::u16: return "U16";
    case DType::u32: return "U32";
    case DType::u64: return "U64";
    case DType::i8: return "I8";
    case DType::i16: return "I16";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::f32: return "F32";
    case DType::f64: return "F64";
    case DType::c64: return "C64";
    case DType::f8e4m3fn: return "F8_E4M3";
    case DType::f8e5m2: return "F8_E5M2";
    case DType::f8e4m3fnuz: return "F8_E4M3FNUZ";
    case DType::f8e5m2fnuz: return "F8_E5M2FNUZ";
    case DType::f4e2m1fn: return "F4";
    case DType::f8e8m0fnu: return "F8_E8M0";
    case DType::c128:
    case DType::qi8:
    case DType::qu8:
    case DType::i4:
    case DType::u4:
    case DType::i2:
    case DType::u2: break;
  }
  return {};
}

SafetensorsHeader read_safetensors_header(std::string_view function, const std::string& path, std::string_view bytes,
                                          std::source_location where) {
  const auto fail = [&](std::string_view what) { throw_malformed(function, path, what, where); };
  if (bytes.size() < kLengthBytes) fail("is too short to be a safetensors file");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kLongestHeader) fail(fmt::format("has a header of {} bytes, more than {}", length, kLongestHeader));
  if (length > bytes.size() - kLengthBytes) fail("ends within its header");
  const std::string_view text = bytes.substr(kLengthBytes, length);
  if (!text.starts_with('{')) fail("has a header that is not an object");
  HeaderBuilder builder(function, path, where);
  builder.element_bytes = bytes.size() - kLengthBytes - length;
  const std::string error = read_json(text, [&](const JsonEvent& event) { builder.take(event); });
  if (!error.empty()) fail("has a header that " + error);
  return builder.finish(kLengthBytes + length, bytes.size());
}

}  // namespace fermata

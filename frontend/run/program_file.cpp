// See program_file.h.
#include "frontend/run/program_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>
#include <bit>
#include <cstring>

#include "frontend/run/program_stream.h"
#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::string_view kMagic = "FERMATA\x1a";
/// Where the numbers of the head lie: version, both descriptions (offset, bytes, checksum), file, and the checksum of
/// these.
constexpr std::size_t kNumbersAt = 8, kHeadNumbers = 9;
static_assert(kNumbersAt + 8 * kHeadNumbers <= kHeadBytes);

class Writer {
 public:
  template <class... T> void operator()(const T&... fields) { (field(fields), ...); }
  std::string take() { return std::move(bytes_); }

 private:
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  template <class T> void field(const T& x) {
    if constexpr (std::same_as<T, Op>)
      field(std::string(name(x)));
    else if constexpr (std::is_enum_v<T>)
      number(static_cast<std::uint64_t>(x));
    else if constexpr (std::same_as<T, double>)
      number(std::bit_cast<std::uint64_t>(x));
    else if constexpr (std::is_signed_v<T>)
      number(static_cast<std::uint64_t>(x) << 1 ^ static_cast<std::uint64_t>(std::int64_t{x} >> 63));
    else if constexpr (std::is_integral_v<T>)
      number(x);
    else if constexpr (std::same_as<T, std::string>)
      number(x.size()), bytes_ += x;
    else if constexpr (is_list<T>)
      list(x);
    else if constexpr (is_variant<T>)
      number(x.index()), std::visit([&](const auto& chosen) { field(chosen); }, x);
    else
      transfer(*this, const_cast<T&>(x));  // which a writer does not change
  }
  template <class T> void list(const std::vector<T>& x) {
    number(x.size());
    for (const T& item : x) field(item);
  }
  std::string bytes_;
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path) : rest_(bytes), path_(path) {}
  template <class... T> void operator()(T&... fields) { (field(fields), ...); }
  void finish() const {
    if (!rest_.empty()) damaged("trailing bytes");
  }

 private:
  [[noreturn]] void damaged(std::string_view what) const { throw_damaged(path_, what); }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) damaged("its description is truncated");
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    damaged("an integer is too long");
  }
  std::uint64_t at_most(std::uint64_t most) {
    const std::uint64_t value = number();
    if (value > most) damaged("a number is too large");
    return value;
  }
  /// Every item takes at least one byte, which bounds what a wrong count can allocate.
  std::size_t count() {
    const std::uint64_t count = number();
    if (count > rest_.size()) damaged("a list or a string is longer than the file");
    return static_cast<std::size_t>(count);
  }

  template <class T> void field(T& x) {
    if constexpr (std::same_as<T, Op>)
      x = op();
    else if constexpr (std::same_as<T, bool>)
      x = at_most(1) != 0;
    else if constexpr (std::is_enum_v<T>)
      x = static_cast<T>(at_most(static_cast<std::uint64_t>(last_of<T>)));
    else if constexpr (std::same_as<T, double>)
      x = std::bit_cast<double>(number());
    else if constexpr (std::is_signed_v<T>)
      x = signed_number();
    else if constexpr (std::is_integral_v<T>)
      x = static_cast<T>(at_most(std::numeric_limits<T>::max()));
    else if constexpr (std::same_as<T, std::string>)
      x = text();
    else if constexpr (is_list<T>)
      list(x);
    else if constexpr (is_variant<T>)
      choose(x, at_most(std::variant_size_v<T> - 1));
    else
      transfer(*this, x);
  }
  std::int64_t signed_number() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>(value >> 1 ^ (~(value & 1) + 1));
  }
  std::string text() {
    const std::size_t size = count();
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  Op op() {
    const std::string name = text();
    if (const std::optional<Op> known = op_from_name(name)) return *known;
    damaged(fmt::format("unknown op '{}'", name.substr(0, 40)));
  }
  template <class T> void list(std::vector<T>& x) {
    const std::size_t size = count();
    for (std::size_t i = 0; i < size; ++i) field(x.emplace_back());
  }
  template <class... T> void choose(std::variant<T...>& x, std::uint64_t index) {
    std::uint64_t at = 0;
    const auto read = [&]<class V>(std::type_identity<V>) {
      if (at++ == index) field(x.template emplace<V>());
    };
    (read(std::type_identity<T>{}), ...);
  }

  std::string_view rest_;
  const std::string& path_;
};

}  // namespace

void throw_damaged(const std::string& path, std::string_view what) {
  throw FileError(2201, format_error(2201, "FileError", fmt::format("{} is damaged: {}", path, what), {}, {},
                                     "copy or export it again"));
}

std::string encode_program(const ProgramFile& program) {
  Writer writer;
  writer(program);
  return writer.take();
}

ProgramFile decode_program(std::string_view bytes, const std::string& path) {
  ProgramFile program;
  Reader reader(bytes, path);
  reader(program);
  reader.finish();
  return program;
}

std::uint64_t checksum_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string encode_head(const ProgramHead& parts, std::uint64_t file_bytes) {
  std::string head(kHeadBytes, '\0');
  std::memcpy(head.data(), kMagic.data(), kMagic.size());
  const auto& [cpu, cuda] = parts;
  std::array<std::uint64_t, kHeadNumbers> numbers{
      kFileVersion, cpu.offset, cpu.bytes, cpu.checksum, cuda.offset, cuda.bytes, cuda.checksum, file_bytes, 0};
  std::memcpy(head.data() + kNumbersAt, numbers.data(), sizeof numbers);
  numbers.back() = checksum_of(std::string_view(head).substr(0, kNumbersAt + 8 * (kHeadNumbers - 1)));
  std::memcpy(head.data() + kNumbersAt, numbers.data(), sizeof numbers);
  return head;
}

ProgramHead decode_head(std::string_view file, const std::string& path) {
  const auto refuse = [&](const std::string& what, std::string_view hint) {
    throw FileError(2202, format_error(2202, "FileError", fmt::format("{} {}", path, what), {}, {}, hint));
  };
  if (file.size() < kHeadBytes || file.substr(0, kMagic.size()) != kMagic)
    refuse("is not an exported program", "create one with export_program()");
  std::array<std::uint64_t, kHeadNumbers> numbers{};
  std::memcpy(numbers.data(), file.data() + kNumbersAt, sizeof numbers);
  if (numbers[0] != kFileVersion)
    refuse(fmt::format("has version {} of the format; this library reads version {}", numbers[0], kFileVersion),
           "export it again with the version of this library");
  if (numbers.back() != checksum_of(file.substr(0, kNumbersAt + 8 * (kHeadNumbers - 1))))
    throw_damaged(path, "the checksum of its header does not match");
  if (numbers[7] != file.size())
    throw_damaged(path, fmt::format("it has {} bytes and should have {}", file.size(), numbers[7]));
  if (numbers[2] == 0 && numbers[5] == 0) throw_damaged(path, "it has no description");
  return {{numbers[1], numbers[2], numbers[3]}, {numbers[4], numbers[5], numbers[6]}};
}

std::string_view part_of(std::string_view file, const FilePart& part, const std::string& path) {
  if (part.offset > file.size() || part.bytes > file.size() - part.offset)
    throw_damaged(path, "a section is outside the file");
  const std::string_view bytes = file.substr(part.offset, part.bytes);
  if (checksum_of(bytes) != part.checksum) throw_damaged(path, "the checksum of a section does not match");
  return bytes;
}

}  // namespace fermata

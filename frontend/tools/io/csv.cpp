// load_csv and save_csv.
//
// Numbers are read by std::from_chars and written by fmt in the shortest form that reads back the same, so neither
// depends on the locale. f16 and bf16 go through double, in which every decimal of reasonable length rounds to them as
// if directly.
#include <fmt/compile.h>
#include <fmt/format.h>
#include <new>

#include <algorithm>
#include <charconv>
#include <vector>

#include "fermata/io.h"
#include "frontend/engine/no_memory.h"
#include "frontend/ops/calls.h"
#include "frontend/tools/io/file.h"
#include "ir/error.h"
#include "ir/float16.h"

namespace fermata {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// Reads the whole of `text` as a T; false if it is no such number.
template <class T> bool parse_value(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  if constexpr (std::is_same_v<T, bool>) {
    value = text == "1" || text == "true";
    return value || text == "0" || text == "false";
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    double wide = 0;
    if (!parse_value(text, wide)) return false;
    if constexpr (std::is_same_v<T, Float16>)
      value = to_float16(wide);
    else
      value = to_bfloat16(wide);
    return true;
  } else {
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (stop != end || text.empty()) return false;
    if constexpr (std::is_floating_point_v<T>) {
      // Too large or too small for T is no error but infinity or zero; a wider type tells which.
      if constexpr (!std::is_same_v<T, long double>) {
        long double wide = 0;
        if (error == std::errc::result_out_of_range && parse_value(text, wide)) {
          value = static_cast<T>(wide);
          return true;
        }
      }
    }
    return error == std::errc();
  }
}

/// Goes through the text line by line and appends the values of each.
template <class T> class TableReader {
 public:
  TableReader(const std::string& path, const CsvFormat& format, DType dtype, Location where)
      : path_(path), format_(format), dtype_(dtype), where_(where) {}

  void read(std::string_view text) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (line_ > format_.skip_lines && !trimmed(line).empty()) read_line(line);
    }
  }
  Tensor to_tensor() const {
    void* data = nullptr;
    Tensor x = new_tensor(dtype_, {rows_, columns_}, &data);
    // Not memcpy of the vector: vector<bool> has no array of bytes.
    T* const out = static_cast<T*>(data);
    for (std::size_t i = 0; i < values_.size(); ++i) out[i] = values_[i];
    return x;
  }

 private:
  void read_line(std::string_view line) {
    std::int64_t count = 0;
    for (bool more = true; more; ++count) {
      const std::size_t end = line.find(format_.separator);
      more = end != std::string_view::npos;
      const std::string_view cell = trimmed(line.substr(0, end));
      if (more) line.remove_prefix(end + 1);
      T value{};
      if (!parse_value(cell, value))
        throw_malformed("load_csv", path_,
                        fmt::format("line {}, value {}: '{}' is not {} {}", line_, count + 1, cell.substr(0, 40),
                                    article(), name(dtype_)),
                        where_);
      values_.push_back(value);
    }
    if (rows_ == 0) columns_ = count;
    if (count != columns_)
      throw_malformed("load_csv", path_, fmt::format("line {} has {} values, not {}", line_, count, columns_), where_);
    ++rows_;
  }
  std::string_view article() const { return name(dtype_).find_first_of("if") == 0 ? "an" : "a"; }

  const std::string& path_;
  const CsvFormat& format_;
  DType dtype_;
  Location where_;
  std::int64_t line_ = 0, rows_ = 0, columns_ = 0;
  std::vector<T> values_;
};

template <class T> void append_value(std::string& text, T value) {
  if constexpr (std::is_same_v<T, bool>)
    text += value ? '1' : '0';
  else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    append_value(text, to_float(value));
  else
    fmt::format_to(std::back_inserter(text), FMT_COMPILE("{}"), value);
}

}  // namespace

Tensor load_csv(const std::string& path, DType dtype, const CsvFormat& format, Location where) try {
  Tensor result;
  const bool known = visit_real(dtype, [&]<class T>() {
    TableReader<T> reader(path, format, dtype, where);
    reader.read(read_file("load_csv", path, where));
    result = reader.to_tensor();
  });
  if (!known) throw_dtype("load_csv", dtype, "supported are bool and real dtypes", where);
  return result;
} catch (const std::bad_alloc&) { throw_no_memory("load_csv", where); }

void save_csv(const std::string& path, const Tensor& x, const CsvFormat& format, Location where) try {
  require_defined("save_csv", x, where);
  const Shape shape = x.shape();
  if (shape.rank() != 1 && shape.rank() != 2)
    throw ShapeError(1013, format_error(1013, "ShapeError", "save_csv: a table must have one or two axes",
                                        {{"x", to_string(x.dtype(), shape), ""}}, where));
  const std::int64_t columns = shape.rank() == 2 ? shape[1] : 1;
  std::string text;
  const bool known = visit_real(x.dtype(), [&]<class T>() {
    std::int64_t column = 0;
    for (const T value : stored_elements<T>(x, where)) {
      append_value(text, value);
      column = column + 1 == columns ? 0 : column + 1;
      text += column == 0 ? '\n' : format.separator;
    }
  });
  if (!known) throw_dtype("save_csv", x.dtype(), "supported are bool and real dtypes", where);
  write_file("save_csv", path, {text}, where);
} catch (const std::bad_alloc&) { throw_no_memory("save_csv", where); }

}  // namespace fermata

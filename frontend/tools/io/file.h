// Whole files, and the errors of reading and writing them.
#pragma once

#include <cstdio>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "frontend/tools/io/file_descriptor.h"
#include "ir/dtype.h"
#include "ir/float16.h"
#include "runtime/tensor.h"

namespace fermata {

/// FM1603 FileError: "load_csv: data.csv: line 3 has 64 values, not 65".
[[noreturn]] void throw_malformed(std::string_view function, const std::string& path, std::string_view what,
                                  std::source_location where);
/// FM1601 or FM1602 FileError: "load_csv: data.csv: cannot be opened (No such file or directory)".
[[noreturn]] void throw_system(int code, std::string_view function, const std::string& path, std::string_view what,
                               int error, std::source_location where);
/// FM1101 DTypeError.
[[noreturn]] void throw_dtype(std::string_view function, DType dtype, std::string_view takes,
                              std::source_location where);

/// What a reader takes: a regular file, or one that ends, too, but has no size.
enum class InputKind : std::uint8_t { file, stream };
/// Opens a file to be read. It never waits: FM1601 FileError for a named pipe, which might never have a writer, for a
/// device, which need not end, and for what else is no regular file. A stream may also be an anonymous pipe, as of a
/// shell. The only place where a path of a user is opened to be read.
FileDescriptor open_input(std::string_view function, const std::string& path, InputKind kind,
                          std::source_location where);

/// A file that is read from its beginning; FM1601 FileError if it cannot be (open_input).
class InputFile {
 public:
  InputFile(std::string_view function, const std::string& path, std::source_location where);
  /// Reads so many bytes, or up to the end of the file; gives their number.
  std::size_t read(void* to, std::size_t bytes);
  /// The same, appended to `text`.
  std::size_t append(std::string& text, std::size_t bytes);
  /// Bytes from the present place to the end; nothing for a pipe.
  std::optional<std::size_t> rest() const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string_view function_;
  const std::string& path_;
  std::source_location where_;
  std::unique_ptr<std::FILE, Close> file_;
  std::optional<std::size_t> size_;
  std::size_t position_ = 0;
};
/// The bytes of a file.
std::string read_file(std::string_view function, const std::string& path, std::source_location where);
/// Writes the parts in order to a temporary file, and renames it, so that a failure leaves an earlier file as it
/// was; FM1602 FileError.
void write_file(std::string_view function, const std::string& path, std::initializer_list<std::string_view> parts,
                std::source_location where);

/// A tensor on the CPU over new memory, which `*data` points to.
Tensor new_tensor(DType dtype, const Shape& shape, void** data);

/// Calls `f.template operator()<T>()` for the storage type of a bool or real dtype; false for the others.
template <class F> bool visit_real(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: f.template operator()<Float16>(); return true;
    case DType::bf16: f.template operator()<BFloat16>(); return true;
    default: return visit_compute(dtype, f);
  }
}

/// All elements in row-major order in the storage type of x's dtype.
template <class T> std::vector<T> stored_elements(const Tensor& x, std::source_location where) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    std::vector<T> narrow;  // every value is a float
    for (const float value : x.to_vector<float>(where)) {
      if constexpr (std::is_same_v<T, Float16>)
        narrow.push_back(to_float16(value));
      else
        narrow.push_back(to_bfloat16(value));
    }
    return narrow;
  } else {
    return x.to_vector<T>(where);
  }
}

}  // namespace fermata

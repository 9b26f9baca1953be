// Files in memory without a copy, and tensors over their bytes.
//
// A mapping is private: what is written to a tensor over it does not reach the file. Another process that makes the
// file shorter while it is mapped makes reading it fail (SIGBUS); atomic writes (atomic_file.h) never do.
#pragma once

#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "runtime/tensor.h"

namespace fermata {

class MappedFile {
 public:
  /// FM1601 FileError if the file cannot be read, or is no regular file.
  static std::shared_ptr<const MappedFile> open(std::string_view function, const std::string& path,
                                                std::source_location where);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile(void* data, std::size_t size) : data_(data), size_(size) {}
  void* data_;
  std::size_t size_;
};

/// A tensor over bytes that `owner` keeps, which hold its elements in row-major order. They are copied where they are
/// not aligned to the dtype, and where a bool is neither 0 nor 1.
Tensor tensor_over(std::shared_ptr<const void> owner, std::string_view bytes, DType dtype, const Shape& shape);

}  // namespace fermata

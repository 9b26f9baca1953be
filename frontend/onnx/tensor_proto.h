// Tensors of ONNX files. Whatever a file says is checked against the bytes that are there before it is used.
#pragma once

#include <map>
#include <memory>
#include <source_location>
#include <string>

#include "frontend/onnx/schema.h"
#include "frontend/tools/io/mapped_file.h"
#include "runtime/tensor.h"

namespace fermata::onnx {

/// FM2302 FileError: "onnx: model.onnx: ...".
[[noreturn]] void throw_damaged(const std::string& path, std::string_view what, std::source_location where);

/// The dtype of a number in TensorProto.DataType, empty for those that Fermata has not.
std::optional<DType> dtype_of_code(std::int64_t code);
/// The other way around; 0 for those that ONNX has not.
int code_of_dtype(DType dtype);

/// Reads tensors of one file, and maps the files that it names.
class TensorReader {
 public:
  TensorReader(std::string path, std::source_location where) : path_(std::move(path)), where_(where) {}
  /// Takes the bytes of a large tensor from the message.
  Tensor read(::onnx::TensorProto& proto);
  const std::string& path() const { return path_; }
  std::source_location where() const { return where_; }

 private:
  Tensor external(const ::onnx::TensorProto& proto, DType dtype, const Shape& shape, std::size_t bytes);

  std::string path_;
  std::source_location where_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace fermata::onnx

// See file.h.
#include "frontend/tools/io/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "ir/error.h"

namespace fermata {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePtr = std::unique_ptr<std::FILE, CloseFile>;

[[noreturn]] void throw_system(int code, std::string_view function, const std::string& path, std::string_view what,
                               int error, std::source_location where) {
  throw FileError(
      code, format_error(code, "FileError", fmt::format("{}: {}: {} ({})", function, path, what, std::strerror(error)),
                         {}, where));
}

}  // namespace

void throw_malformed(std::string_view function, const std::string& path, std::string_view what,
                     std::source_location where) {
  throw FileError(1603, format_error(1603, "FileError", fmt::format("{}: {}: {}", function, path, what), {}, where));
}

void throw_dtype(std::string_view function, DType dtype, std::string_view takes, std::source_location where) {
  throw DTypeError(1101, format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(dtype)),
                                      {}, where, takes));
}

std::string read_file(std::string_view function, const std::string& path, std::source_location where) {
  const FilePtr file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) throw_system(1601, function, path, "cannot be opened", errno, where);
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  std::string bytes;
  for (std::size_t got = kChunk; got == kChunk;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + kChunk);
    got = std::fread(bytes.data() + before, 1, kChunk, file.get());
    bytes.resize(before + got);
  }
  if (std::ferror(file.get()) != 0) throw_system(1601, function, path, "cannot be read", errno, where);
  return bytes;
}

void write_file(std::string_view function, const std::string& path, std::string_view bytes,
                std::source_location where) {
  const std::string beside = fmt::format("{}.{}.partial", path, getpid());
  FilePtr file(std::fopen(beside.c_str(), "wb"));
  if (file == nullptr) throw_system(1602, function, path, "cannot be written", errno, where);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  if (written && std::fclose(file.release()) == 0 && std::rename(beside.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  file.reset();
  std::remove(beside.c_str());
  throw_system(1602, function, path, "cannot be written", error, where);
}

Tensor new_tensor(DType dtype, const Shape& shape, void** data) {
  const auto bytes = static_cast<std::size_t>(element_count(shape)) * byte_size(dtype);
  Storage* const storage = Storage::allocate(bytes);
  *data = storage->data;
  Node* const node = make_leaf({dtype, shape}, storage, BackendKey::cpu, Node::kTensor);
  return Tensor(node, DispatchKeySet(BackendKey::cpu) | Functionality::dense);
}

}  // namespace fermata

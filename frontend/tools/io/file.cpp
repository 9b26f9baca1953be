// See file.h.
#include "frontend/tools/io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>

#include "frontend/tools/io/atomic_file.h"
#include "ir/error.h"

namespace fermata {

void throw_system(int code, std::string_view function, const std::string& path, std::string_view what, int error,
                  std::source_location where) {
  throw FileError(
      code, format_error(code, "FileError", fmt::format("{}: {}: {} ({})", function, path, what, std::strerror(error)),
                         {}, where));
}

void throw_malformed(std::string_view function, const std::string& path, std::string_view what,
                     std::source_location where) {
  throw FileError(1603, format_error(1603, "FileError", fmt::format("{}: {}: {}", function, path, what), {}, where));
}

void throw_dtype(std::string_view function, DType dtype, std::string_view takes, std::source_location where) {
  throw DTypeError(1101, format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(dtype)),
                                      {}, where, takes));
}

FileDescriptor open_input(std::string_view function, const std::string& path, InputKind kind,
                          std::source_location where) {
  // Without O_NONBLOCK a pipe waits for a writer here, and some devices for a carrier.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0)
    throw_system(1601, function, path, "cannot be opened", errno, where);
  if (S_ISREG(status.st_mode)) return file;
  struct statfs system {};
  const bool is_pipe = S_ISFIFO(status.st_mode);
  const bool is_anonymous = is_pipe && ::fstatfs(file.get(), &system) == 0 && system.f_type == PIPEFS_MAGIC;
  if (kind == InputKind::stream && is_anonymous) {
    if (::fcntl(file.get(), F_SETFL, 0) != 0) throw_system(1601, function, path, "cannot be opened", errno, where);
    return file;
  }
  const std::string_view what = S_ISDIR(status.st_mode)    ? "a directory"
                                : is_anonymous             ? "a pipe"
                                : is_pipe                  ? "a named pipe"
                                : S_ISSOCK(status.st_mode) ? "a socket"
                                                           : "a device";
  throw FileError(
      1601, format_error(1601, "FileError", fmt::format("{}: {}: is {}, not a regular file", function, path, what), {},
                         where));
}

InputFile::InputFile(std::string_view function, const std::string& path, std::source_location where)
    : function_(function), path_(path), where_(where) {
  FileDescriptor file = open_input(function, path, InputKind::stream, where);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_system(1601, function, path, "cannot be read", errno, where);
  if (S_ISREG(status.st_mode)) size_ = static_cast<std::size_t>(status.st_size);
  file_.reset(::fdopen(file.get(), "rb"));
  if (file_ == nullptr) throw_system(1601, function, path, "cannot be read", errno, where);
  static_cast<void>(file.release());
}

std::size_t InputFile::read(void* to, std::size_t bytes) {
  const std::size_t got = std::fread(to, 1, bytes, file_.get());
  if (got < bytes && std::ferror(file_.get()) != 0)
    throw_system(1601, function_, path_, "cannot be read", errno, where_);
  position_ += got;
  return got;
}

std::size_t InputFile::append(std::string& text, std::size_t bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;  // what a file says of its length need not be true
  const std::size_t begin = text.size();
  for (bool more = true; more && bytes > 0;) {
    const std::size_t before = text.size(), chunk = std::min(bytes, kChunk);
    text.resize(before + chunk);
    const std::size_t got = read(text.data() + before, chunk);
    text.resize(before + got);
    bytes -= got, more = got == chunk;
  }
  return text.size() - begin;
}

std::optional<std::size_t> InputFile::rest() const {
  if (!size_) return std::nullopt;
  return *size_ - std::min(*size_, position_);
}

std::string read_file(std::string_view function, const std::string& path, std::source_location where) {
  InputFile file(function, path, where);
  std::string bytes;
  bytes.reserve(file.rest().value_or(0));
  file.append(bytes, std::numeric_limits<std::size_t>::max());
  return bytes;
}

void write_file(std::string_view function, const std::string& path, std::initializer_list<std::string_view> parts,
                std::source_location where) {
  AtomicFile file(function, path, where, Flush::no);
  for (const std::string_view bytes : parts) file.write(bytes);
  file.commit();
}

Tensor new_tensor(DType dtype, const Shape& shape, void** data) {
  const auto bytes = static_cast<std::size_t>(element_count(shape)) * byte_size(dtype);
  Storage* const storage = Storage::allocate(bytes);
  *data = storage->data;
  Node* const node = make_leaf({dtype, shape}, storage, BackendKey::cpu, Node::kTensor);
  return Tensor(node, DispatchKeySet(BackendKey::cpu) | Functionality::dense);
}

}  // namespace fermata

// See atomic_file.h.
#include "frontend/tools/io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "frontend/tools/io/file.h"

namespace fermata {

std::string name_beside(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}.{}.{}.partial", path, ::getpid(), count++);
}

void commit_file(std::string_view function, const std::string& beside, const std::string& path,
                 std::source_location where) {
  const FileDescriptor file(::open(beside.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open() || ::fsync(file.get()) != 0 || ::rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(beside.c_str());
    throw_system(1602, function, path, "cannot be written", error, where);
  }
  // The name is an entry of the folder, which must be synced separately. Some file systems cannot, and need not.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const FileDescriptor above(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (above.is_open()) (void)::fsync(above.get());
}

AtomicFile::AtomicFile(std::string_view function, std::string path, std::source_location where)
    : function_(function),
      path_(std::move(path)),
      beside_(name_beside(path_)),
      where_(where),
      file_(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) fail(errno);
}

AtomicFile::~AtomicFile() {
  if (!committed_ && file_.is_open()) ::unlink(beside_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // one call takes less than 2 GiB
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), std::min(bytes.size(), kMost));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  committed_ = true;
  commit_file(function_, beside_, path_, where_);
}

void AtomicFile::fail(int error) const { throw_system(1602, function_, path_, "cannot be written", error, where_); }

}  // namespace fermata

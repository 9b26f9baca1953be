// See atomic_file.h.
#include "frontend/tools/io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "frontend/tools/io/file.h"

namespace fermata {

AtomicFile::AtomicFile(std::string_view function, std::string path, std::source_location where, Flush flush)
    : function_(function), path_(std::move(path)), where_(where), flush_(flush) {
  open_beside();
}

/// What a process that was killed has left is taken over. The name of a file that somebody else is writing now, or that
/// is not to be trusted, is left alone: then there is one that nobody else takes.
void AtomicFile::open_beside() {
  beside_ = path_ + ".fermata-partial";
  if (FileDescriptor file = open_locked(beside_); file.is_open()) {
    file_ = std::move(file);
    if (::ftruncate(file_.get(), 0) == 0) return;
    const int error = errno;
    ::unlink(beside_.c_str());
    fail(error);
  }
  static std::atomic<unsigned> count{0};
  beside_ = fmt::format("{}.{}.{}.fermata-partial", path_, ::getpid(), count++);
  file_ = FileDescriptor(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file_.is_open()) fail(errno);
}

/// A file of this name and user that nobody else writes.
FileDescriptor AtomicFile::open_locked(const std::string& name) const {
  constexpr int kNobodyElse = -1;
  FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  struct stat own {
  }, named{};
  const bool is_mine = file.is_open() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
                       ::fstat(file.get(), &own) == 0 && S_ISREG(own.st_mode) && own.st_nlink == 1 &&
                       own.st_uid == ::geteuid();
  // Whoever had the lock before may have given the file its name since.
  if (is_mine && ::lstat(name.c_str(), &named) == 0 && named.st_dev == own.st_dev && named.st_ino == own.st_ino)
    return file;
  return FileDescriptor(kNobodyElse);
}

/// Some file systems say that there is no room only when a file is closed.
bool AtomicFile::tells_no_error() const {
  FileDescriptor again(::dup(file_.get()));
  return again.is_open() && again.close();
}

AtomicFile::~AtomicFile() {
  if (!committed_ && file_.is_open()) ::unlink(beside_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // one call takes less than 2 GiB
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_.get(), bytes.data(), std::min(bytes.size(), kMost), static_cast<off_t>(position_));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written)), position_ += static_cast<std::uint64_t>(written);
  }
}

/// The lock is held until the file has its name.
void AtomicFile::commit() {
  const bool is_there = flush_ == Flush::yes ? ::fsync(file_.get()) == 0 : tells_no_error();
  if (!is_there || ::rename(beside_.c_str(), path_.c_str()) != 0) fail(errno);
  committed_ = true;
  if (flush_ == Flush::no) return;
  // The name is an entry of the folder, which must be synced separately. Some file systems cannot, and need not.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const FileDescriptor above(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (above.is_open()) (void)::fsync(above.get());
}

void AtomicFile::fail(int error) const { throw_system(1602, function_, path_, "cannot be written", error, where_); }

}  // namespace fermata

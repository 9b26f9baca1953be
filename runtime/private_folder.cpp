// See private_folder.h.
#include "runtime/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace fermata {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = ".unfinished";
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

struct Descriptor {
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int release() { return std::exchange(fd, -1); }
  int fd;
};

bool is_private(const struct stat& status) {
  return S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & kOthersWrite) == 0;
}

/// A folder above `path` in which anybody may put another one in its place, or nothing.
fs::path exposed_parent(const fs::path& path) {
  std::error_code error;
  struct stat status;
  for (fs::path parent = fs::canonical(path, error).parent_path(); !error && !parent.empty();
       parent = parent.parent_path()) {
    if (stat(parent.c_str(), &status) != 0) return parent;
    if ((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0) return parent;
    if (parent == parent.root_path()) break;
  }
  return {};
}

template <class F> ssize_t repeat(F&& call) {
  ssize_t n = 0;
  do n = call();
  while (n < 0 && errno == EINTR);
  return n;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = repeat([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool read_all(int fd, std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = repeat([&] { return ::read(fd, bytes.data() + done, bytes.size() - done); });
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

/// Why a file is not to be believed, or nothing.
std::string_view doubt(const struct stat& status, std::uint64_t most_bytes) {
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  if (status.st_uid != geteuid()) return "it belongs to another user";
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) return "other users may read or write it";
  if (static_cast<std::uint64_t>(status.st_size) > most_bytes) return "it is too large";
  return {};
}

}  // namespace

std::unique_ptr<PrivateFolder> PrivateFolder::open(const std::string& path, bool make, std::string& refused) {
  if (make) {
    std::error_code ignored;
    fs::create_directories(fs::path(path).parent_path(), ignored);
    ::mkdir(path.c_str(), S_IRWXU);  // may be there already; what counts is what is opened now
  }
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (folder.fd < 0 && errno != ENOTDIR && errno != ELOOP) return nullptr;
  struct stat status;
  if (folder.fd < 0 && lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode))
    return refused = "it is a link, not a folder", nullptr;
  if (folder.fd < 0 || fstat(folder.fd, &status) != 0 || !is_private(status))
    return refused = "it is not a folder that only this user may write to", nullptr;
  if (const fs::path exposed = exposed_parent(path); !exposed.empty())
    return refused = fmt::format("any user may write to {}", exposed.string()), nullptr;
  const Identity identity{status.st_dev, status.st_ino};
  return std::unique_ptr<PrivateFolder>(new PrivateFolder(folder.release(), identity));
}

PrivateFolder::~PrivateFolder() {
  if (is_intact()) close(descriptor_);  // a program that closed all descriptors may have given the number to another
}

bool PrivateFolder::is_intact() const {
  struct stat status;
  return fstat(descriptor_, &status) == 0 && status.st_dev == identity_.device && status.st_ino == identity_.inode &&
         status.st_nlink > 0 && is_private(status);
}

std::optional<std::string> PrivateFolder::read(const std::string& name, std::uint64_t most_bytes, std::string& wrong,
                                               std::time_t note_use_after) const {
  const Descriptor file(openat(descriptor_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.fd < 0) {
    if (errno == ELOOP) wrong = "it is a link";
    return std::nullopt;
  }
  struct stat status;
  if (fstat(file.fd, &status) != 0) return std::nullopt;
  if (wrong = doubt(status, most_bytes); !wrong.empty()) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  if (!read_all(file.fd, bytes)) return std::nullopt;
  // A date in the future is one of a clock that has been set since.
  const std::time_t unused = std::time(nullptr) - status.st_mtime;
  if (unused > note_use_after || unused < 0) futimens(file.fd, nullptr);
  return bytes;
}

bool PrivateFolder::write(const std::string& name, std::string_view bytes, bool keep_existing) const {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != sizeof(random)) return false;
  const std::string beside = fmt::format("{}.{:016x}{}", name, random, kUnfinished);
  bool written = false;
  {
    const Descriptor file(
        openat(descriptor_, beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file.fd < 0) return false;
    // One that is to stay must survive a loss of power; the others can be made again.
    written = write_all(file.fd, bytes) && (!keep_existing || fsync(file.fd) == 0);
  }
  const auto renamed = [&] {
    if (!keep_existing) return renameat(descriptor_, beside.c_str(), descriptor_, name.c_str()) == 0;
    if (renameat2(descriptor_, beside.c_str(), descriptor_, name.c_str(), RENAME_NOREPLACE) == 0) return true;
    if (errno != EINVAL && errno != ENOSYS) return false;  // such file systems cannot tell: nearly as good
    return !exists(name) && renameat(descriptor_, beside.c_str(), descriptor_, name.c_str()) == 0;
  };
  if (written && renamed()) return true;
  unlinkat(descriptor_, beside.c_str(), 0);
  return false;
}

bool PrivateFolder::exists(const std::string& name) const {
  struct stat status;
  return fstatat(descriptor_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

bool PrivateFolder::remove(const std::string& name) const {
  return unlinkat(descriptor_, name.c_str(), 0) == 0 || unlinkat(descriptor_, name.c_str(), AT_REMOVEDIR) == 0;
}

std::vector<PrivateFolder::File> PrivateFolder::files() const {
  std::vector<File> files;
  Descriptor again(openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const listing = again.fd < 0 ? nullptr : fdopendir(again.fd);
  if (listing == nullptr) return files;
  again.release();
  const std::unique_ptr<DIR, int (*)(DIR*)> owner(listing, closedir);
  while (const dirent* const entry = readdir(listing)) {
    struct stat status;
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || fstatat(descriptor_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    files.push_back({name, static_cast<std::uint64_t>(status.st_size), status.st_mtime});
  }
  return files;
}

bool PrivateFolder::is_unfinished(std::string_view name) { return name.ends_with(kUnfinished); }

}  // namespace fermata

// See disk_cache.h.
#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include <xxhash.h>

#include "runtime/environment.h"

namespace fermata {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kDefaultLimit = std::uint64_t{256} << 20;
constexpr std::string_view kExtension = ".kernel";
constexpr auto kUseIsNotedAfter = std::chrono::hours(1);

/// How a file begins; key, label and value follow.
struct Header {
  std::array<char, 8> magic;
  std::uint64_t key_bytes, label_bytes, value_bytes, checksum;
};
constexpr std::array<char, 8> kMagic = {'F', 'M', 'K', 'E', 'R', 'N', '0', '1'};

std::string default_directory() {
  if (const char* const given = environment_variable("FERMATA_CACHE_DIR")) return given;
  if (const char* const caches = environment_variable("XDG_CACHE_HOME"); caches != nullptr && *caches == '/')
    return fs::path(caches) / "fermata";
  if (const char* const home = environment_variable("HOME"); home != nullptr && *home == '/')
    return fs::path(home) / ".cache" / "fermata";
  return {};
}

std::uint64_t default_limit() {
  const char* const text = environment_variable("FERMATA_CACHE_DIR_LIMIT");
  if (text == nullptr) return kDefaultLimit;
  std::uint64_t bytes = kDefaultLimit;
  std::from_chars(text, text + std::strlen(text), bytes);
  return bytes;
}

struct File {
  explicit File(int descriptor) : fd(descriptor) {}
  ~File() {
    if (fd >= 0) close(fd);
  }
  File(const File&) = delete;
  const int fd;
};

std::optional<std::string> read_file(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = read(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) return std::nullopt;
    done += static_cast<std::size_t>(n);
  }
  const auto age = std::chrono::system_clock::now() - std::chrono::system_clock::from_time_t(status.st_mtime);
  if (age > kUseIsNotedAfter) futimens(fd, nullptr);
  return bytes;
}

bool write_file(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

struct Content {
  std::string_view key, label, value;
};
/// The parts of a file's bytes, or what is wrong with them.
Content take_apart(std::string_view bytes, std::string& wrong) {
  Header header;
  if (bytes.size() < sizeof(header)) return wrong = "it is cut short", Content{};
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return wrong = "it is no file of this cache", Content{};
  const std::string_view rest = bytes.substr(sizeof(header));
  if (header.key_bytes > rest.size() || header.label_bytes > rest.size() - header.key_bytes ||
      header.value_bytes != rest.size() - header.key_bytes - header.label_bytes)
    return wrong = "it is cut short", Content{};
  if (XXH3_64bits(rest.data(), rest.size()) != header.checksum) return wrong = "its checksum differs", Content{};
  return {rest.substr(0, header.key_bytes), rest.substr(header.key_bytes, header.label_bytes),
          rest.substr(header.key_bytes + header.label_bytes)};
}

struct Found {
  fs::path path;
  std::uint64_t bytes;
  fs::file_time_type used;
};
std::vector<Found> files_of(const fs::path& directory) {
  std::vector<Found> files;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() != kExtension) continue;
    std::error_code gone;
    const std::uint64_t bytes = at->file_size(gone);
    const auto used = gone ? fs::file_time_type() : at->last_write_time(gone);
    if (!gone) files.push_back({at->path(), bytes, used});
  }
  std::ranges::sort(files, [](const Found& a, const Found& b) { return a.used > b.used; });
  return files;
}

/// Removes what processes that ended in the middle of a store have left.
std::size_t remove_leftovers(const fs::path& directory, std::chrono::seconds older_than) {
  std::size_t removed = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().find(std::string(kExtension) + ".") == std::string::npos) continue;
    std::error_code gone;
    const auto written = at->last_write_time(gone);
    if (!gone && fs::file_time_type::clock::now() - written >= older_than) removed += unlink(at->path().c_str()) == 0;
  }
  return removed;
}

}  // namespace

DiskCache& DiskCache::instance() {
  static DiskCache* const cache = new DiskCache;
  return *cache;
}

DiskCache::DiskCache() : directory_(default_directory()), limit_(default_limit()) {}

std::string DiskCache::directory() const {
  const std::lock_guard lock(mutex_);
  return directory_;
}

std::string DiskCache::set_directory(std::string directory) {
  const std::lock_guard lock(mutex_);
  checked_ = false;
  until_trim_ = 0;
  return std::exchange(directory_, std::move(directory));
}

std::uint64_t DiskCache::set_limit(std::uint64_t bytes) { return limit_.exchange(bytes); }

fs::path DiskCache::path_of(std::string_view key) const {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fs::path(directory()) / fmt::format("{:016x}{:016x}{}", hash.high64, hash.low64, kExtension);
}

/// The folder must be ours alone to write to; one that is not there yet will be.
bool DiskCache::may_use(const fs::path& directory) {
  if (directory.empty()) return false;
  if (checked_.load(std::memory_order_acquire)) return usable_.load(std::memory_order_relaxed);
  struct stat status;
  if (stat(directory.c_str(), &status) != 0) return true;
  const bool usable = S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 022) == 0;
  if (!usable)
    fmt::print(stderr,
               "fermata warning: {} is not used: it is not a folder that only its owner, this user, may write to\n",
               directory.string());
  usable_.store(usable, std::memory_order_relaxed);
  checked_.store(true, std::memory_order_release);
  return usable;
}

void DiskCache::report(const fs::path& file, std::string_view why) {
  ++damaged_;
  fmt::print(stderr, "fermata warning: {} is not used and removed: {}\n", file.string(), why);
  unlink(file.c_str());
}

std::optional<std::string> DiskCache::find(std::string_view key) {
  const fs::path path = path_of(key);
  if (!may_use(path.parent_path())) return std::nullopt;
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::optional<std::string> bytes;
  if (file.fd >= 0) bytes = read_file(file.fd);
  if (!bytes) return ++misses_, std::nullopt;
  std::string wrong;
  const Content content = take_apart(*bytes, wrong);
  if (!wrong.empty()) report(path, wrong);
  if (!wrong.empty() || content.key != key) return ++misses_, std::nullopt;
  ++hits_;
  return bytes->substr(bytes->size() - content.value.size());
}

void DiskCache::store(std::string_view key, std::string_view label, std::string_view value) {
  const fs::path path = path_of(key);
  if (!may_use(path.parent_path())) return;
  std::error_code error;
  if (fs::create_directories(path.parent_path(), error))
    fs::permissions(path.parent_path(), fs::perms::owner_all, error);
  if (error || !may_use(path.parent_path())) return;
  std::string bytes(sizeof(Header), '\0');
  bytes.append(key).append(label).append(value);
  const Header header{kMagic, key.size(), label.size(), value.size(),
                      XXH3_64bits(bytes.data() + sizeof(Header), bytes.size() - sizeof(Header))};
  std::memcpy(bytes.data(), &header, sizeof(header));
  const fs::path beside = fmt::format("{}.{}.{}", path.string(), getpid(), ++temporaries_);
  bool written = false;
  {
    const File file(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    written = file.fd >= 0 && write_file(file.fd, bytes);
  }
  if (!written || rename(beside.c_str(), path.c_str()) != 0) {
    unlink(beside.c_str());
    return;
  }
  ++stores_;
  trim_sometimes(bytes.size());
}

void DiskCache::discard(std::string_view key, std::string_view why) {
  if (const fs::path path = path_of(key); access(path.c_str(), F_OK) == 0) report(path, why);
}

/// Looks at the folder at the first store and whenever a sixteenth of the limit has been written.
void DiskCache::trim_sometimes(std::uint64_t written) {
  const std::uint64_t limit = limit_.load();
  std::uint64_t left = until_trim_.load();
  while (left > written)
    if (until_trim_.compare_exchange_weak(left, left - written)) return;
  until_trim_ = std::max<std::uint64_t>(limit / 16, 1);
  std::uint64_t kept = 0;
  for (const Found& file : files_of(directory()))
    if ((kept += file.bytes) > limit) unlink(file.path.c_str());
  remove_leftovers(directory(), kUseIsNotedAfter);
}

std::vector<DiskCache::Entry> DiskCache::entries() const {
  std::vector<Entry> entries;
  const auto now = fs::file_time_type::clock::now();
  for (const Found& found : files_of(directory())) {
    const File file(open(found.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd < 0) continue;
    std::string bytes(static_cast<std::size_t>(found.bytes), '\0'), wrong;
    const ssize_t n = pread(file.fd, bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    const Content content = take_apart(bytes, wrong);
    entries.push_back({found.path.filename().string(), wrong.empty() ? std::string(content.label) : "damaged: " + wrong,
                       found.bytes, std::chrono::duration_cast<std::chrono::seconds>(now - found.used)});
  }
  return entries;
}

std::size_t DiskCache::clear() {
  std::size_t removed = 0;
  for (const Found& file : files_of(directory())) removed += unlink(file.path.c_str()) == 0;
  return removed + remove_leftovers(directory(), std::chrono::seconds(0));
}

}  // namespace fermata

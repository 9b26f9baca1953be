// See disk_cache.h.
#include "runtime/disk_cache.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <limits>
#include <utility>

#include <xxhash.h>

#include "runtime/environment.h"
#include "runtime/keyed_hash.h"
#include "runtime/private_folder.h"

namespace fermata {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kDefaultLimit = std::uint64_t{256} << 20;
constexpr std::uint64_t kLargestFile = std::uint64_t{64} << 20;
constexpr std::string_view kExtension = ".kernel";
constexpr const char* kSecret = "secret";
constexpr std::time_t kUseIsNotedAfter = 3600;

/// How a file begins; key, label and value follow. The hash is that of all that comes after it.
struct Header {
  std::array<char, 8> magic;
  KeyedHash hash;
  std::uint64_t key_bytes, label_bytes, value_bytes;
};
constexpr std::array<char, 8> kMagic = {'F', 'M', 'K', 'E', 'R', 'N', '0', '2'};
constexpr std::size_t kHashed = offsetof(Header, key_bytes);

std::string default_directory() {
  if (const char* const given = environment_variable("FERMATA_CACHE_DIR")) return given;
  if (const char* const caches = environment_variable("XDG_CACHE_HOME"); caches != nullptr && *caches == '/')
    return fs::path(caches) / "fermata";
  if (const char* const home = environment_variable("HOME"); home != nullptr && *home == '/')
    return fs::path(home) / ".cache" / "fermata";
  return {};
}

std::string name_of(std::string_view key) {
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{:016x}{:016x}{}", hash.high64, hash.low64, kExtension);
}

struct Content {
  std::string_view key, label, value;
};
/// The parts of a file's bytes, or what is wrong with them.
Content take_apart(std::string_view bytes, const HashKey& secret, std::string& wrong) {
  Header header;
  if (bytes.size() < sizeof(header)) return wrong = "it is truncated", Content{};
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return wrong = "it is not a file of this cache", Content{};
  const std::string_view rest = bytes.substr(sizeof(header));
  if (header.key_bytes > rest.size() || header.label_bytes > rest.size() - header.key_bytes ||
      header.value_bytes != rest.size() - header.key_bytes - header.label_bytes)
    return wrong = "it is truncated", Content{};
  if (keyed_hash(secret, bytes.substr(kHashed)) != header.hash) return wrong = "its checksum does not match", Content{};
  return {rest.substr(0, header.key_bytes), rest.substr(header.key_bytes, header.label_bytes),
          rest.substr(header.key_bytes + header.label_bytes)};
}

/// The secret of a folder. Nothing if there is none, or, with `wrong`, none that is to be believed.
std::optional<HashKey> read_secret(const PrivateFolder& folder, std::string& wrong) {
  HashKey secret;
  const auto bytes = folder.read(kSecret, sizeof(secret), wrong, kUseIsNotedAfter);
  if (!bytes) return std::nullopt;
  if (bytes->size() != sizeof(secret)) return wrong = "it is truncated", std::nullopt;
  std::memcpy(secret.data(), bytes->data(), sizeof(secret));
  return secret;
}

/// Of several processes one wins, and all read what it wrote.
std::optional<HashKey> make_secret(const PrivateFolder& folder) {
  HashKey secret;
  if (getrandom(secret.data(), sizeof(secret), 0) != sizeof(secret)) return std::nullopt;
  folder.write(kSecret, {reinterpret_cast<const char*>(secret.data()), sizeof(secret)}, true);
  std::string wrong;
  return read_secret(folder, wrong);
}

/// The files that hold values, used last first.
std::vector<PrivateFolder::File> values_in(const PrivateFolder& folder) {
  std::vector<PrivateFolder::File> files = folder.files();
  std::erase_if(files, [](const PrivateFolder::File& file) { return !file.name.ends_with(kExtension); });
  std::ranges::sort(files, std::ranges::greater(), &PrivateFolder::File::changed);
  return files;
}

/// Removes what processes that ended in the middle of a store have left.
std::size_t remove_leftovers(const PrivateFolder& folder, std::time_t older_than) {
  std::size_t removed = 0;
  for (const PrivateFolder::File& file : folder.files())
    if (PrivateFolder::is_unfinished(file.name) && std::time(nullptr) - file.changed >= older_than)
      removed += folder.remove(file.name);
  return removed;
}

}  // namespace

struct DiskCache::Folder {
  std::string path;
  std::unique_ptr<PrivateFolder> files;
  HashKey secret;
};

DiskCache& DiskCache::instance() {
  static DiskCache* const cache = new DiskCache;
  return *cache;
}

DiskCache::DiskCache()
    : directory_(default_directory()), limit_(environment_number("FERMATA_CACHE_DIR_LIMIT", kDefaultLimit)) {}

std::string DiskCache::directory() const {
  const std::lock_guard lock(mutex_);
  return directory_;
}

std::string DiskCache::set_directory(std::string directory) {
  const std::lock_guard lock(mutex_);
  folder_ = nullptr;
  refused_ = false;
  until_trim_ = 0;
  return std::exchange(directory_, std::move(directory));
}

std::uint64_t DiskCache::set_limit(std::uint64_t bytes) { return limit_.exchange(bytes); }

/// Null where there is none that may be used. One that was removed or taken away is opened anew.
std::shared_ptr<const DiskCache::Folder> DiskCache::folder(bool make) {
  const std::lock_guard lock(mutex_);
  if (directory_.empty() || refused_) return nullptr;
  if (folder_ != nullptr && folder_->files->is_intact()) return folder_;
  folder_ = nullptr;
  std::string why;
  std::unique_ptr<PrivateFolder> files = PrivateFolder::open(directory_, make, why);
  if (!why.empty()) {
    refused_ = true;
    fmt::print(stderr, "fermata warning: ignoring {}: {}\n", directory_, why);
  }
  if (files == nullptr) return nullptr;
  std::optional<HashKey> secret = read_secret(*files, why);
  if (!why.empty()) {
    refused_ = !files->remove(kSecret);
    fmt::print(stderr, "fermata warning: removing {}: {}\n", (fs::path(directory_) / kSecret).string(), why);
  }
  if (!secret && make && !refused_) secret = make_secret(*files);
  if (secret) folder_ = std::make_shared<const Folder>(directory_, std::move(files), *secret);
  return folder_;
}

void DiskCache::report(const Folder& folder, const std::string& file, std::string_view why) {
  ++damaged_;
  folder.files->remove(file);
  fmt::print(stderr, "fermata warning: removing {}: {}\n", (fs::path(folder.path) / file).string(), why);
}

std::optional<std::string> DiskCache::find(std::string_view key) noexcept try {
  const auto from = folder(false);
  if (from == nullptr) return ++misses_, std::nullopt;
  const std::string name = name_of(key);
  std::string wrong;
  std::optional<std::string> bytes = from->files->read(name, kLargestFile, wrong, kUseIsNotedAfter);
  Content content;
  if (bytes) content = take_apart(*bytes, from->secret, wrong);
  if (!wrong.empty()) report(*from, name, wrong);
  if (!bytes || !wrong.empty() || content.key != key) return ++misses_, std::nullopt;
  ++hits_;
  return bytes->substr(bytes->size() - content.value.size());
} catch (const std::exception&) { return ++misses_, std::nullopt; }

void DiskCache::store(std::string_view key, std::string_view label, std::string_view value) noexcept try {
  const std::size_t size = sizeof(Header) + key.size() + label.size() + value.size();
  const auto to = size > kLargestFile ? nullptr : folder(true);
  if (to == nullptr) return;
  std::string bytes(sizeof(Header), '\0');
  bytes.append(key).append(label).append(value);
  Header header{kMagic, {}, key.size(), label.size(), value.size()};
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.hash = keyed_hash(to->secret, std::string_view(bytes).substr(kHashed));
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!to->files->write(name_of(key), bytes)) return;
  ++stores_;
  trim_sometimes(*to, bytes.size());
} catch (const std::exception&) {}  // not stored

void DiskCache::discard(std::string_view key, std::string_view why) noexcept try {
  const auto from = folder(false);
  if (const std::string name = name_of(key); from != nullptr && from->files->exists(name)) report(*from, name, why);
} catch (const std::exception&) {}  // it is found to be of no use again

/// Looks at the folder at the first store and whenever a sixteenth of the limit has been written.
void DiskCache::trim_sometimes(const Folder& folder, std::uint64_t written) {
  const std::uint64_t limit = limit_.load();
  std::uint64_t left = until_trim_.load();
  while (left > written)
    if (until_trim_.compare_exchange_weak(left, left - written)) return;
  until_trim_ = std::max<std::uint64_t>(limit / 16, 1);
  std::uint64_t kept = 0;
  for (const PrivateFolder::File& file : values_in(*folder.files))
    if (__builtin_add_overflow(kept, file.bytes, &kept) || kept > limit) folder.files->remove(file.name);
  remove_leftovers(*folder.files, kUseIsNotedAfter);
}

std::vector<DiskCache::Entry> DiskCache::entries() {
  std::vector<Entry> entries;
  const auto from = folder(false);
  if (from == nullptr) return entries;
  const std::time_t now = std::time(nullptr);
  for (const PrivateFolder::File& file : values_in(*from->files)) {
    std::string wrong, label;
    const auto bytes = from->files->read(file.name, kLargestFile, wrong, std::numeric_limits<std::time_t>::max());
    if (bytes) label = take_apart(*bytes, from->secret, wrong).label;
    if (bytes || !wrong.empty())
      entries.push_back({file.name, wrong.empty() ? label : "damaged: " + wrong, file.bytes,
                         std::chrono::seconds(now - file.changed)});
  }
  return entries;
}

std::size_t DiskCache::clear() {
  const auto from = folder(false);
  if (from == nullptr) return 0;
  std::size_t removed = 0;
  for (const PrivateFolder::File& file : values_in(*from->files)) removed += from->files->remove(file.name);
  return removed + remove_leftovers(*from->files, 0);
}

}  // namespace fermata

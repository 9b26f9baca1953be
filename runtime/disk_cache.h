// Machine code that outlives the process: a folder of files, one for each key, shared by processes.
//
// A file holds its whole key, which is compared, and a checksum; it is written beside and renamed, so that readers see
// all of it or nothing. A damaged file is reported, removed, and counts as not there. Nothing here throws: a cache that
// cannot be read or written is slow, not wrong. Whoever may write to the folder may choose what this process runs, so
// one that others may write to is not used.
//
// FERMATA_CACHE_DIR: the folder; empty for none. By default fermata/ in XDG_CACHE_HOME or ~/.cache.
// FERMATA_CACHE_DIR_LIMIT: bytes kept, 256 MiB by default; beyond that the files go that were used longest ago.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fermata {

class DiskCache {
 public:
  static DiskCache& instance();

  /// Empty where nothing is kept.
  std::string directory() const;
  /// Returns the one before. Made when something is stored.
  std::string set_directory(std::string directory);
  std::uint64_t set_limit(std::uint64_t bytes);

  std::optional<std::string> find(std::string_view key);
  /// `label` is for people.
  void store(std::string_view key, std::string_view label, std::string_view value);
  /// Takes out a value that is of no use after all, and says why.
  void discard(std::string_view key, std::string_view why);

  struct Entry {
    std::string file, label;
    std::uint64_t bytes;
    std::chrono::seconds unused;  // since it was last used, give or take an hour
  };
  /// What is there, used last first.
  std::vector<Entry> entries() const;
  /// Removes everything; gives the number of files.
  std::size_t clear();

  struct Counts {
    std::uint64_t hits, misses, stores, damaged;
  };
  Counts counts() const { return {hits_.load(), misses_.load(), stores_.load(), damaged_.load()}; }

 private:
  DiskCache();
  std::filesystem::path path_of(std::string_view key) const;
  bool may_use(const std::filesystem::path& directory);
  void report(const std::filesystem::path& file, std::string_view why);
  void trim_sometimes(std::uint64_t written);

  mutable std::mutex mutex_;  // of the directory
  std::string directory_;
  std::atomic<bool> checked_{false}, usable_{false};
  std::atomic<std::uint64_t> limit_, until_trim_{0};
  std::atomic<std::uint64_t> hits_{0}, misses_{0}, stores_{0}, damaged_{0}, temporaries_{0};
};

}  // namespace fermata

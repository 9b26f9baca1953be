// Persistent cache of machine code: a folder of files, one for each key, shared by processes.
//
// The contents are executed, so only files written by this user's processes are trusted: the folder and its files
// belong exclusively to the user (runtime/private_folder.h), and each file holds its whole key and a hash keyed with
// the secret in the folder, a file that only the user may read. Any other file is reported, removed, and treated as a
// miss. A program that runs with the rights of another user (setuid) caches nothing.
//
// Nothing here throws: a cache that cannot be read or written is slow, not wrong.
//
// FERMATA_CACHE_DIR: the folder; empty disables the cache. By default fermata/ in XDG_CACHE_HOME or ~/.cache.
// FERMATA_CACHE_DIR_LIMIT: bytes kept, 256 MiB by default; beyond that the least recently used files are evicted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/fork.h"

namespace fermata {

class DiskCache {
 public:
  static DiskCache& instance();

  /// Empty if the cache is disabled.
  std::string directory() const;
  /// The folder is created by the first store if it does not exist. Returns the previous folder.
  std::string set_directory(std::string directory);
  std::uint64_t set_limit(std::uint64_t bytes);

  std::optional<std::string> find(std::string_view key) noexcept;
  /// `label` is for people.
  void store(std::string_view key, std::string_view label, std::string_view value) noexcept;
  /// Removes a value that turned out to be unusable, and reports why.
  void discard(std::string_view key, std::string_view why) noexcept;

  struct Entry {
    std::string file, label;
    std::uint64_t bytes;
    std::chrono::seconds unused;  // since its last use, accurate to about an hour
  };
  /// The entries, most recently used first.
  std::vector<Entry> entries();
  /// Removes all entries; returns the number of files.
  std::size_t clear();

  struct Counts {
    std::uint64_t hits, misses, stores, damaged;
  };
  Counts counts() const { return {hits_.load(), misses_.load(), stores_.load(), damaged_.load()}; }

 private:
  struct Folder;
  DiskCache();
  std::shared_ptr<const Folder> folder(bool make);
  void report(const Folder& folder, const std::string& file, std::string_view why);
  void trim_sometimes(const Folder& folder, std::uint64_t written);

  mutable ForkSafeMutex mutex_;  // guards the next three
  std::string directory_;
  std::shared_ptr<const Folder> folder_;
  bool refused_ = false;
  std::atomic<std::uint64_t> limit_, until_trim_{0};
  std::atomic<std::uint64_t> hits_{0}, misses_{0}, stores_{0}, damaged_{0};
};

}  // namespace fermata

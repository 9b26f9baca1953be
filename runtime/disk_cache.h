// Machine code that outlives the process: a folder of files, one for each key, shared by processes.
//
// What is found here is executed, so only what this user's processes wrote is believed: the folder and its files belong
// to the user and to nobody else (runtime/private_folder.h), and each file holds its whole key and a hash that only
// those can make who read the secret in the folder, a file that only the user may read. Anything else is reported,
// removed, and counts as not there. A program that runs with the rights of another user (setuid) keeps nothing.
//
// Nothing here throws: a cache that cannot be read or written is slow, not wrong.
//
// FERMATA_CACHE_DIR: the folder; empty for none. By default fermata/ in XDG_CACHE_HOME or ~/.cache.
// FERMATA_CACHE_DIR_LIMIT: bytes kept, 256 MiB by default; beyond that the files go that were used longest ago.
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

  /// Empty where nothing is kept.
  std::string directory() const;
  /// The folder may be one that is made when something is stored. Returns the one before.
  std::string set_directory(std::string directory);
  std::uint64_t set_limit(std::uint64_t bytes);

  std::optional<std::string> find(std::string_view key) noexcept;
  /// `label` is for people.
  void store(std::string_view key, std::string_view label, std::string_view value) noexcept;
  /// Takes out a value that is of no use after all, and says why.
  void discard(std::string_view key, std::string_view why) noexcept;

  struct Entry {
    std::string file, label;
    std::uint64_t bytes;
    std::chrono::seconds unused;  // since it was last used, give or take an hour
  };
  /// What is there, used last first.
  std::vector<Entry> entries();
  /// Removes everything; gives the number of files.
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

  mutable ForkSafeMutex mutex_;  // of the next three
  std::string directory_;
  std::shared_ptr<const Folder> folder_;
  bool refused_ = false;
  std::atomic<std::uint64_t> limit_, until_trim_{0};
  std::atomic<std::uint64_t> hits_{0}, misses_{0}, stores_{0}, damaged_{0};
};

}  // namespace fermata

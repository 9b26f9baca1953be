// Kept machine code: found again, bounded, and never believed where it is damaged or not ours.
#include "runtime/disk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace fermata {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest() {
    fs::remove_all(folder_);
    before_ = cache_.set_directory(folder_ / "kernels");
  }
  ~DiskCacheTest() override {
    cache_.set_directory(before_);
    cache_.set_limit(std::uint64_t{256} << 20);
    fs::remove_all(folder_);
  }
  fs::path only_file() const {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(folder_ / "kernels")) found = entry.path();
    return found;
  }

  DiskCache& cache_ = DiskCache::instance();
  const fs::path folder_ = fs::temp_directory_path() / ("fermata_disk_cache_test." + std::to_string(getpid()));
  std::string before_;
};

TEST_F(DiskCacheTest, FindsWhatWasStored) {
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  cache_.store("key", "a label", std::string("va\0lue", 6));
  EXPECT_EQ(cache_.find("key"), std::string("va\0lue", 6));
  EXPECT_EQ(cache_.find("another"), std::nullopt);
  cache_.store("key", "a label", "");
  EXPECT_EQ(cache_.find("key"), "");
  const auto entries = cache_.entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].label, "a label");
  struct stat status;
  ASSERT_EQ(stat((folder_ / "kernels").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(DiskCacheTest, KeepsNothingWithoutAFolder) {
  cache_.set_directory("");
  cache_.store("key", "", "value");
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  EXPECT_TRUE(cache_.entries().empty());
}

TEST_F(DiskCacheTest, ReportsAndRemovesDamagedFiles) {
  const auto damaged = [&](auto&& damage) {
    cache_.store("key", "label", "value");
    const fs::path file = only_file();
    damage(file);
    testing::internal::CaptureStderr();
    EXPECT_EQ(cache_.find("key"), std::nullopt);
    EXPECT_FALSE(fs::exists(file));
    std::string said = testing::internal::GetCapturedStderr();
    return said.substr(said.find(".kernel"));
  };
  EXPECT_EQ(damaged([](const fs::path& file) { fs::resize_file(file, 10); }),
            ".kernel is not used and removed: it is cut short\n");
  EXPECT_EQ(damaged([](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1); }),
            ".kernel is not used and removed: it is cut short\n");
  EXPECT_EQ(damaged([](const fs::path& file) { std::ofstream(file) << std::string(100, 'x'); }),
            ".kernel is not used and removed: it is no file of this cache\n");
  EXPECT_EQ(damaged([](const fs::path& file) {
              std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
              out.seekp(-1, std::ios::end) << 'x';
            }),
            ".kernel is not used and removed: its checksum differs\n");
  cache_.store("key", "label", "value");
  EXPECT_EQ(cache_.find("key"), "value");
}

TEST_F(DiskCacheTest, DoesNotUseAFolderThatOthersMayWriteTo) {
  cache_.store("key", "label", "value");
  fs::permissions(folder_ / "kernels", fs::perms::owner_all | fs::perms::others_write);
  cache_.set_directory(folder_ / "kernels");
  testing::internal::CaptureStderr();
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "fermata warning: " + (folder_ / "kernels").string() +
                " is not used: it is not a folder that only its owner, this user, may write to\n");
}

TEST_F(DiskCacheTest, StaysWithinItsLimit) {
  cache_.set_limit(20'000);
  const std::string value(1000, 'v');
  for (int i = 0; i < 100; ++i) cache_.store("key " + std::to_string(i), "", value);
  std::uint64_t bytes = 0;
  for (const DiskCache::Entry& e : cache_.entries()) bytes += e.bytes;
  EXPECT_LT(bytes, 23'000u);  // a sixteenth and a file above
  EXPECT_GT(bytes, 10'000u);
  EXPECT_EQ(cache_.find("key 99"), value);
  EXPECT_GT(cache_.clear(), 0u);
  EXPECT_TRUE(cache_.entries().empty());
}

TEST_F(DiskCacheTest, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const std::string key = "key " + std::to_string(i % 10), value(static_cast<std::size_t>(i % 10) * 100, 'v');
        EXPECT_EQ(cache_.find(key).value_or(value), value);
        cache_.store(key, "", value);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache_.entries().size(), 10u);
}

}  // namespace
}  // namespace fermata

// Kept machine code: found again, bounded, and never believed where it is damaged or not ours.
#include "runtime/disk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "tests/ir/seed.h"

namespace fermata {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public ::testing::Test {
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
    for (const auto& entry : fs::directory_iterator(folder_ / "kernels"))
      if (entry.path().extension() == ".kernel") found = entry.path();
    return found;
  }
  /// The warning when the modified file is looked up.
  std::string said_of(const std::function<void(const fs::path&)>& damage) {
    cache_.store("key", "label", "value");
    const fs::path file = only_file();
    damage(file);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(cache_.find("key"), std::nullopt);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(fs::exists(fs::symlink_status(file)));
    return said.substr(std::min(said.find(".kernel"), said.size()));
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
  EXPECT_EQ(said_of([](const fs::path& file) { fs::resize_file(file, 10); }), ".kernel: it is truncated\n");
  EXPECT_EQ(said_of([](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1); }),
            ".kernel: it is truncated\n");
  EXPECT_EQ(said_of([](const fs::path& file) { std::ofstream(file) << std::string(100, 'x'); }),
            ".kernel: it is not a file of this cache\n");
  EXPECT_EQ(said_of([](const fs::path& file) {
              std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
              out.seekp(-1, std::ios::end) << 'x';
            }),
            ".kernel: its checksum does not match\n");
  cache_.store("key", "label", "value");
  EXPECT_EQ(cache_.find("key"), "value");
}

/// What is put in the place of a file is not waited for, not read into memory whatever its size, and not believed.
TEST_F(DiskCacheTest, ReportsAndRemovesWhatIsNoFileOfItsOwn) {
  const auto replaced = [&](auto&& make) {
    return said_of([&](const fs::path& file) {
      fs::rename(file, folder_ / "original");
      make(file);
    });
  };
  EXPECT_EQ(replaced([](const fs::path& file) { ASSERT_EQ(mkfifo(file.c_str(), 0600), 0); }),
            ".kernel: it is not a regular file\n");
  EXPECT_EQ(replaced([](const fs::path& file) { fs::create_directory(file); }), ".kernel: it is not a regular file\n");
  EXPECT_EQ(replaced([&](const fs::path& file) { fs::create_symlink(folder_ / "original", file); }),
            ".kernel: it is a link\n");
  EXPECT_EQ(replaced([](const fs::path& file) {
              std::ofstream(file) << 'x';
              fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
              fs::resize_file(file, std::uint64_t{1} << 40);
            }),
            ".kernel: it is too large\n");
  EXPECT_EQ(said_of([](const fs::path& file) { fs::permissions(file, fs::perms::all); }),
            ".kernel: other users may read or write it\n");
}

TEST_F(DiskCacheTest, BelievesOnlyWhatWasMadeWithItsSecret) {
  cache_.store("key", "label", "of the planter");
  fs::rename(only_file(), folder_ / "planted");
  fs::remove_all(folder_ / "kernels");
  EXPECT_EQ(said_of([&](const fs::path& file) { fs::rename(folder_ / "planted", file); }),
            ".kernel: its checksum does not match\n");
  struct stat status;
  ASSERT_EQ(stat((folder_ / "kernels" / "secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, 16);
}

TEST_F(DiskCacheTest, MakesAnotherSecretWhereOthersKnowIt) {
  const fs::path secret = folder_ / "kernels" / "secret";
  const auto warning = [&](const char* why) {
    return "fermata warning: removing " + secret.string() + ": " + why + "\n";
  };
  const auto said = [&](auto&& damage) {
    cache_.store("key", "label", "value");
    damage();
    cache_.set_directory(folder_ / "kernels");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(cache_.find("key"), std::nullopt);
    EXPECT_EQ(cache_.find("key"), std::nullopt);
    const std::string text = ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();  // the file is one of the secret before
    cache_.store("another", "label", "value");
    EXPECT_EQ(cache_.find("another"), "value");
    ::testing::internal::GetCapturedStderr();
    return text;
  };
  EXPECT_EQ(said([&] { fs::permissions(secret, fs::perms::others_read, fs::perm_options::add); }),
            warning("other users may read or write it"));
  EXPECT_EQ(said([&] { fs::resize_file(secret, 3); }), warning("it is truncated"));
  EXPECT_EQ(said([&] { fs::remove(secret), fs::create_symlink("elsewhere", secret); }), warning("it is a link"));
}

TEST_F(DiskCacheTest, StaysWithTheFolderThatItOpened) {
  cache_.store("key", "label", "value");
  fs::rename(folder_ / "kernels", folder_ / "moved");
  fs::create_directory(folder_ / "kernels");
  EXPECT_EQ(cache_.find("key"), "value");
  cache_.store("another", "label", "value");
  EXPECT_TRUE(fs::is_empty(folder_ / "kernels"));
  EXPECT_EQ(cache_.entries().size(), 2u);
}

TEST_F(DiskCacheTest, MakesAFolderAgainThatWasRemoved) {
  cache_.store("key", "label", "value");
  fs::remove_all(folder_ / "kernels");
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  cache_.store("key", "label", "value");
  EXPECT_EQ(cache_.find("key"), "value");
}

TEST_F(DiskCacheTest, DoesNotUseAFolderThatIsNotItsOwn) {
  const auto said = [&] {
    cache_.set_directory(folder_ / "kernels");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(cache_.find("key"), std::nullopt);
    EXPECT_EQ(cache_.find("key"), std::nullopt);
    cache_.store("key", "label", "value");
    std::string text = ::testing::internal::GetCapturedStderr();
    const std::string begin = "fermata warning: ignoring " + (folder_ / "kernels").string() + ": ";
    EXPECT_TRUE(text.starts_with(begin)) << text;
    return text.substr(std::min(begin.size(), text.size()));
  };
  cache_.store("key", "label", "value");
  fs::permissions(folder_ / "kernels", fs::perms::owner_all | fs::perms::others_write);
  EXPECT_EQ(said(), "it is not a folder that only this user may write to\n");
  fs::permissions(folder_ / "kernels", fs::perms::owner_all);
  fs::permissions(folder_, fs::perms::all);
  EXPECT_EQ(said(), "any user may write to " + fs::canonical(folder_).string() + "\n");
  fs::permissions(folder_, fs::perms::all | fs::perms::sticky_bit);
  cache_.set_directory(folder_ / "kernels");
  EXPECT_EQ(cache_.find("key"), "value");
  fs::rename(folder_ / "kernels", folder_ / "target");
  fs::create_directory_symlink(folder_ / "target", folder_ / "kernels");
  EXPECT_EQ(said(), "it is a link, not a folder\n");
  fs::remove(folder_ / "kernels");
  std::ofstream(folder_ / "kernels") << 'x';
  EXPECT_EQ(said(), "it is not a folder that only this user may write to\n");
}

/// A folder that becomes another's while the program runs is not used any longer.
TEST_F(DiskCacheTest, LooksAtTheFolderEachTime) {
  cache_.store("key", "label", "value");
  fs::permissions(folder_ / "kernels", fs::perms::all);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cache_.find("key"), std::nullopt);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("only this user may write to"));
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

/// What the process of the next test does until it is killed: stores and finds, with a disk that is full from time to
/// time. Ends by itself where it finds something else than was stored.
[[noreturn]] void store_and_find(DiskCache& cache, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  if (random() % 4 == 0) {
    std::signal(SIGXFSZ, SIG_IGN);  // writes beyond the limit fail
    const rlimit limit{random() % 20'000, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  for (;;) {
    const std::uint64_t n = random() % 40;
    const std::string key = "key " + std::to_string(n), value(n * 500, static_cast<char>('a' + n % 26));
    if (const auto found = cache.find(key); found && *found != value) _exit(3);
    if (random() % 3 != 0) cache.store(key, "label", value);
    if (random() % 50 == 0) cache.clear();
  }
}

/// FERMATA_KILLS: how many processes are killed, each at any moment, two at a time.
TEST_F(DiskCacheTest, SurvivesProcessesThatAreKilled) {
  const char* const given = std::getenv("FERMATA_KILLS");
  const int kills = given == nullptr ? 100 : std::atoi(given);
  cache_.set_limit(100'000);
  std::mt19937_64 random(testing::test_seed(3));
  pid_t running[2] = {0, 0};
  const auto end = [&](pid_t child) {
    int status = 0;
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "another value than was stored";
  };
  for (int i = 0; i < kills; ++i) {
    pid_t& child = running[i % 2];
    if (child != 0) end(child);
    const std::uint64_t seed = random();
    child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) store_and_find(cache_, seed);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
  }
  for (const pid_t child : running)
    if (child != 0) end(child);
  for (const DiskCache::Entry& e : cache_.entries()) EXPECT_EQ(e.label, "label");
  cache_.clear();
  cache_.store("key", "label", "value");
  EXPECT_EQ(cache_.find("key"), "value");
  for (const auto& entry : fs::directory_iterator(folder_ / "kernels"))
    EXPECT_FALSE(entry.path().string().ends_with(".unfinished")) << entry.path();
}

/// The dates of files say nothing of what is in them.
TEST_F(DiskCacheTest, ClocksMayBeSet) {
  using namespace std::chrono_literals;
  for (const auto shift : {-24h * 365 * 60, -48h, 48h, 24h * 365 * 100}) {
    cache_.store("key", "label", "value");
    fs::last_write_time(only_file(), fs::file_time_type::clock::now() + shift);
    EXPECT_EQ(cache_.find("key"), "value");
    EXPECT_LT(std::abs(cache_.entries().at(0).unused.count()), 3600);
  }
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

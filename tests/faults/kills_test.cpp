// What is left of files and of the disk cache where a process is killed: each program that writes is traced and killed
// before each of its system calls that change a file in turn. Then the file is the old one or the new one, the next
// save works, and what lies around does not grow.
#include <fermata/export.h>
#include <fermata/io.h>
#include <fermata/modules.h>
#include <fermata/onnx.h>
#include <fermata/safetensors.h>
#include <fermata/trace.h>
#include <fermata/training_file.h>
#include <gtest/gtest.h>
#include <linux/elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dispatch/backend.h"
#include "runtime/disk_cache.h"
#include "tests/programs/programs.h"

namespace fermata {
namespace {

namespace fs = std::filesystem;

/// Whether a system call changes files or folders, or what others see of them. Between two of them nothing changes.
bool changes_files(std::uint64_t number) {
  static const std::set<std::uint64_t> calls{
#ifdef SYS_open
      SYS_open,     SYS_creat,           SYS_rename,   SYS_link,      SYS_unlink,    SYS_mkdir,
      SYS_rmdir,    SYS_chmod,
#endif
      SYS_openat,   SYS_write,           SYS_pwrite64, SYS_writev,    SYS_renameat2, SYS_linkat,
      SYS_close,    SYS_unlinkat,        SYS_mkdirat,  SYS_fchmod,    SYS_fchmodat,  SYS_ftruncate,
      SYS_fsync,    SYS_fdatasync,       SYS_flock,    SYS_fallocate,
#ifdef SYS_renameat
      SYS_renameat,
#endif
      SYS_sendfile, SYS_copy_file_range, SYS_utimensat};
  return calls.contains(number);
}

enum class End : std::uint8_t { killed, finished, failed, not_traced };

/// Runs `work` in a process that is killed before its call number `call` that changes files, counted from 1. Calls of
/// other threads do not count.
End killed_before(std::uint64_t call, const std::function<void()>& work) {
  constexpr int kNotTraced = 77, kFailed = 3;
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) std::_Exit(kNotTraced);
    raise(SIGSTOP);
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(kFailed);
    }
    std::_Exit(0);
  }
  int status = 0;
  const auto wait = [&] { return waitpid(child, &status, __WALL) == child && WIFSTOPPED(status); };
  const auto end = [&] {
    if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGKILL ? End::killed : End::failed;
    return WEXITSTATUS(status) == kNotTraced ? End::not_traced : WEXITSTATUS(status) == 0 ? End::finished : End::failed;
  };
  if (child < 0) return End::not_traced;
  if (!wait()) return end();
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  std::uint64_t calls = 0;
  for (long signal = 0;;) {
    if (ptrace(PTRACE_SYSCALL, child, nullptr, signal) != 0 || !wait()) return end();
    signal = 0;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
      signal = WSTOPSIG(status);
      continue;
    }
    __ptrace_syscall_info info{};
    const auto size = reinterpret_cast<void*>(sizeof(info));
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, size, &info) <= 0) {
      kill(child, SIGKILL);
      waitpid(child, &status, __WALL);
      return End::not_traced;
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !changes_files(info.entry.nr) || ++calls != call) continue;
    kill(child, SIGKILL);
    waitpid(child, &status, __WALL);
    return end();
  }
}

using programs::Results;

/// What is saved, and read again: version 1 or 2.
struct Writer {
  const char* name;
  void (*save)(const std::string& folder, int version);
  void (*load)(const std::string& folder, Results& results);
  bool (*is_there)() = [] { return true; };  // in this build
};

Tensor numbers(int version) { return arange(0, 600, 1, DType::f32).reshape(20, 30) * version; }
NamedTensors model(int version) {
  return {{"a", numbers(version)}, {"b", arange(7) + version}, {"c", full({3}, version)}};
}
struct Net {
  nn::Linear linear{4, 3};
};
constexpr auto kAddAll = [](const NamedTensors& tensors, Results& results) {
  for (const auto& [name, x] : tensors) results.add(astype(x, DType::f64));
};
Trace traced(int version) {
  return trace([version](const Tensor& x) { return x * version + version; }, ones({2, 3}));
}
void add_bytes(const std::string& path, Results& results) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw FileError(1601, "there is no file");
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  results.add(static_cast<double>(bytes.size()));
  for (const char byte : bytes) results.add(byte);
}
class CacheIn {
 public:
  explicit CacheIn(const std::string& folder) : before_(DiskCache::instance().set_directory(folder + "/kernels")) {}
  ~CacheIn() { DiskCache::instance().set_directory(before_); }
  CacheIn(const CacheIn&) = delete;
  CacheIn& operator=(const CacheIn&) = delete;

 private:
  const std::string before_;
};

const Writer kWriters[] = {
    {"save_npy", [](const std::string& f, int version) { save_npy(f + "/x.npy", numbers(version)); },
     [](const std::string& f, Results& r) { r.add(load_npy(f + "/x.npy")); }},
    {"save_npz", [](const std::string& f, int version) { save_npz(f + "/x.npz", model(version)); },
     [](const std::string& f, Results& r) { kAddAll(load_npz(f + "/x.npz"), r); }},
    {"save_npz_compressed", [](const std::string& f, int version) { save_npz(f + "/x.npz", model(version), true); },
     [](const std::string& f, Results& r) { kAddAll(load_npz(f + "/x.npz"), r); }},
    {"save_npz_of_nothing",
     [](const std::string& f, int version) { save_npz(f + "/x.npz", version == 1 ? NamedTensors{} : model(version)); },
     [](const std::string& f, Results& r) { kAddAll(load_npz(f + "/x.npz"), r); }},
    {"save_csv", [](const std::string& f, int version) { save_csv(f + "/x.csv", numbers(version)); },
     [](const std::string& f, Results& r) { r.add(load_csv(f + "/x.csv")); }},
    {"save_safetensors",
     [](const std::string& f, int version) { save_safetensors(f + "/x.safetensors", model(version)); },
     [](const std::string& f, Results& r) { kAddAll(load_safetensors(f + "/x.safetensors"), r); }},
    {"save_safetensors_of_all_processes",
     [](const std::string& f, int version) { save_safetensors(f + "/x.safetensors.index.json", model(version)); },
     [](const std::string& f, Results& r) { kAddAll(load_safetensors(f + "/x.safetensors.index.json"), r); }},
    {"save_training",
     [](const std::string& f, int version) {
       manual_seed(static_cast<std::uint64_t>(version));
       Net net;
       optim::AdamW adam(net, {.learning_rate = 1e-2});
       save_training(f + "/run.safetensors", net, adam, {.step = version});
     },
     [](const std::string& f, Results& r) {
       Net net;
       optim::AdamW adam(net, {.learning_rate = 1e-2});
       r.add(static_cast<double>(load_training(f + "/run.safetensors", net, adam).step));
       for (const auto& [name, x] : nn::state_dict(net)) r.add(x);
     }},
    {"save_trace", [](const std::string& f, int version) { save_trace(traced(version), f + "/x.txt"); },
     [](const std::string& f, Results& r) { add_bytes(f + "/x.txt", r); }},
    {"save_onnx", [](const std::string& f, int version) { onnx::save(traced(version), f + "/x.onnx"); },
     [](const std::string& f, Results& r) { add_bytes(f + "/x.onnx", r); }, [] { return onnx::available(); }},
    {"export_program",
     [](const std::string& f, int version) {
       export_program(
           f + "/x.fermata", {}, [version](const Tensor& x) { return x * version + version; }, ones({4}));
     },
     [](const std::string& f, Results& r) { add_bytes(f + "/x.fermata", r); },
     [] { return backend(BackendKey::cpu)->can_compile(nullptr); }},
    {"disk_cache",
     [](const std::string& f, int version) {
       const CacheIn cache(f);
       DiskCache::instance().store("key", "label", std::string(300, static_cast<char>('0' + version)));
     },
     [](const std::string& f, Results& r) {
       const CacheIn cache(f);
       const auto found = DiskCache::instance().find("key");
       if (!found) throw FileError(1601, "nothing is kept");
       for (const char byte : *found) r.add(byte);
     }},
};

class Kills : public ::testing::TestWithParam<const Writer*> {
 protected:
  Kills() { fs::create_directories(folder_); }
  ~Kills() override { fs::remove_all(folder_); }

  void save(int version) { GetParam()->save(folder_, version); }
  /// What is read, or nothing where there is no file. Damaged files are defects.
  std::optional<Results> load() {
    Results results;
    try {
      GetParam()->load(folder_, results);
    } catch (const FileError& error) {
      constexpr int kNotThere = 1601;
      EXPECT_EQ(error.code(), kNotThere) << error.what();
      return std::nullopt;
    }
    return results;
  }
  std::set<std::string> files() {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.is_regular_file()) names.insert(fs::relative(entry.path(), folder_).string());
    return names;
  }
  void empty_folder() { fs::remove_all(folder_), fs::create_directories(folder_); }

  /// Kills a save before each of its calls, over what `begin` has made.
  void kill_each(const std::function<void()>& begin, const std::optional<Results>& old, const Results& fresh) {
    begin();
    save(2);
    const std::size_t clean = files().size();
    for (std::uint64_t call = 1;; ++call) {
      SCOPED_TRACE("killed before call " + std::to_string(call));
      begin();
      const End end = killed_before(call, [this] { save(2); });
      if (end == End::not_traced) GTEST_SKIP() << "processes cannot be traced here";
      ASSERT_NE(end, End::failed);
      const std::optional<Results> found = load();
      const bool is_old = found.has_value() == old.has_value() && (!found || *found == *old);
      EXPECT_TRUE(is_old || (found && *found == fresh)) << "another file than the old or the new one";
      if (end == End::finished) {
        EXPECT_TRUE(found && *found == fresh);
        return;
      }
      ++kills;
      save(2);  // the next one
      EXPECT_EQ(load(), fresh);
      // What the cache may not touch for an hour, since another process may be writing it.
      std::set<std::string> left = files();
      std::erase_if(left, [](const std::string& name) { return name.ends_with(".unfinished"); });
      EXPECT_LE(left.size(), clean) << ::testing::PrintToString(left);
      if (HasFailure()) return;
    }
  }
  static void TearDownTestSuite() { std::printf("%llu kills\n", static_cast<unsigned long long>(kills)); }
  static inline std::uint64_t kills = 0;

  const std::string folder_ =
      fs::temp_directory_path() / ("fermata_kills_" + std::string(GetParam()->name) + "_" + std::to_string(getpid()));
};

TEST_P(Kills, LeaveTheOldFileOrTheNewOne) {
  if (!GetParam()->is_there()) GTEST_SKIP() << "this build cannot write it";
  save(1);
  const std::optional<Results> old = load();
  save(2);
  const std::optional<Results> fresh = load();
  ASSERT_TRUE(old && fresh);
  ASSERT_NE(*old, *fresh);
  kill_each([this] { empty_folder(), save(1); }, old, *fresh);
  kill_each([this] { empty_folder(); }, std::nullopt, *fresh);
}

/// Process after process is killed where its file is as large as it gets.
TEST_P(Kills, LeaveNothingThatGrows) {
  if (!GetParam()->is_there()) GTEST_SKIP() << "this build cannot write it";
  save(1);
  std::uint64_t calls = 1;
  for (End end = End::killed; end == End::killed; ++calls) {
    end = killed_before(calls, [this] { save(1); });
    if (end == End::not_traced) GTEST_SKIP() << "processes cannot be traced here";
  }
  empty_folder(), save(1);
  const std::size_t clean = files().size();
  std::size_t most = 0;
  for (std::uint64_t call = 1; call < calls; ++call) {
    ASSERT_NE(killed_before(call, [this] { save(1); }), End::failed);
    std::set<std::string> left = files();
    std::erase_if(left, [](const std::string& name) { return name.ends_with(".unfinished"); });
    most = std::max(most, left.size());
  }
  // Of each file of the save at most one is beside it; a save of all processes may have left the files of one more.
  EXPECT_LE(most, 3 * clean + 1) << ::testing::PrintToString(files());
  for (const auto& entry : fs::recursive_directory_iterator(folder_))  // an hour later
    if (entry.is_regular_file() && entry.path().string().ends_with(".unfinished"))
      fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(2));
  save(2);
  EXPECT_LE(files().size(), clean) << ::testing::PrintToString(files());
}

std::vector<const Writer*> all_writers() {
  std::vector<const Writer*> all;
  for (const Writer& writer : kWriters) all.push_back(&writer);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Writers, Kills, ::testing::ValuesIn(all_writers()),
                         [](const auto& at) { return std::string(at.param->name); });

}  // namespace
}  // namespace fermata

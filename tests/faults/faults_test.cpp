// Makes each fault point of a program fail in turn (docs/testing.md, "Fault injection"). Each time the program gives
// its numbers or a documented error, and its next run gives the numbers of a run without faults, to the bit. What is
// live after that does not grow.
//
// FERMATA_FAULT_COUNT: how many points of each kind are tried, spread over the program; "all" tries each.
#include "tests/faults/faults.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <tuple>
#include <typeinfo>

#include "runtime/allocator.h"
#include "runtime/background.h"
#include "tests/programs/programs.h"

namespace fermata {
namespace {

using faults::kKindNames;
using programs::Program;
using programs::Results;

/// What is there when a run begins.
enum class Start : std::uint8_t {
  cold,  // no plans, no kernels: all is compiled, or comes from the disk
  seen,  // the same, but structures are interpreted when they are seen first
  warm,  // what the runs before have left
};
constexpr const char* kStartNames[] = {"cold", "seen", "warm"};

struct Case {
  const Program* program;
  Mode mode;
};
std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}", info.param.program->name, info.param.mode == Mode::eager ? "eager" : "compiled");
}
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Program& program : programs::all())
    for (const Mode mode : {Mode::eager, Mode::compiled}) cases.push_back({&program, mode});
  return cases;
}

/// How far a child has come, and what it has found.
struct Progress {
  std::uint64_t points, next;  // of the program; to be tried next
  std::uint64_t tried, defects;
  bool finished;
  char text[1 << 16];
  void report(const std::string& what) {
    ++defects;
    const std::size_t used = std::strlen(text);
    std::strncat(text, what.c_str(), sizeof(text) - used - 1);
  }
};

std::uint64_t points_to_try(std::uint64_t otherwise) {
  const char* const text = std::getenv("FERMATA_FAULT_COUNT");
  if (text == nullptr) return otherwise;
  return std::strcmp(text, "all") == 0 ? ~0ull : std::strtoull(text, nullptr, 10);
}

/// Where std::bad_alloc becomes an error of the engine: see FM3001 in docs/errors.md.
bool is_in_engine(std::string_view place) {
  for (const char* const part :
       {"BoundPlan::", "PlanRun::", "CompiledCore::call", "_flat(", "general_call(", "make_view(", "run_backward("})
    if (place.find(part) != place.npos) return true;
  return false;
}

class Trial {
 public:
  Trial(const Case& c, FaultKind kind, Start start, const std::string& folder)
      : case_(c), kind_(kind), start_(start), folder_(folder) {}

  void run(Progress& progress, std::uint64_t count) {
    alarm(kPatience);
    const ModeGuard mode(case_.mode);
    set_compile_policy(start_ == Start::seen ? CompilePolicy::second_sight : CompilePolicy::immediate);
    // As many as fill what threads keep of plans that were there.
    for (int i = 0; i < 20; ++i) expected_ = without_faults();
    faults::arm(kind_, 0);
    prepare();
    Results ignored;
    case_.program->run(ignored, folder_);
    wait_for_compiling();
    progress.points = faults::disarm();
    if (progress.next == 0) try_point(progress, 0);  // does it leak without faults?
    const std::uint64_t tried = std::min(count, progress.points);
    for (; progress.next < tried; ++progress.next, ++progress.tried) {
      // In the middle of the part of the points that this one stands for.
      const std::uint64_t number = 1 + (2 * progress.next + 1) * progress.points / (2 * tried);
      try_point(progress, std::min(number, progress.points));
    }
    progress.finished = true;
  }

 private:
  static constexpr unsigned kPatience = 300;  // seconds for a point
  struct Live {
    std::int64_t blocks, bytes;
  };

  void prepare() {
    if (start_ != Start::warm) clear_compile_caches();
  }
  Results without_faults() {
    prepare();
    Results results;
    case_.program->run(results, folder_);
    wait_for_compiling();
    return results;
  }

  void try_point(Progress& progress, std::uint64_t number) {
    alarm(kPatience);
    const auto report = [&](const std::string& what) {
      progress.report(fmt::format("  {}:{} ({}): {}\n{}", kKindNames[static_cast<int>(kind_)], number,
                                  kStartNames[static_cast<int>(start_)], what, faults::place()));
    };
    std::array<Live, 400> live{};  // without pools threads keep plans that were there for longer
    for (std::size_t i = 0; i < live.size(); ++i) {
      if (const std::string wrong = failing_run(number); !wrong.empty()) return report(wrong);
      try {
        if (without_faults() != expected_) return report("the next run gives other numbers");
      } catch (const std::exception& error) { return report(fmt::format("the next run fails: {}", error.what())); }
      live[i] = {faults::live_blocks(), static_cast<std::int64_t>(memory_stats().live_bytes)};
      if (i > 0 && live[i].blocks <= live[i - 1].blocks && live[i].bytes <= live[i - 1].bytes) return;
    }
    std::string text = "leaks; live blocks and bytes of tensors are";
    for (const Live& l : live) text += fmt::format(" {}/{}", l.blocks, l.bytes);
    report(text);
  }

  /// What is wrong with what happens when the point fails; empty if nothing is.
  std::string failing_run(std::uint64_t number) {
    prepare();
    Results results;
    std::string wrong;
    bool succeeded = false;
    faults::arm(kind_, number);
    try {
      case_.program->run(results, folder_);
      succeeded = true;
    } catch (const InternalError& error) {
      constexpr int kOfTheDevice = 9101;
      if (kind_ != FaultKind::cuda || error.code() != kOfTheDevice)
        wrong = fmt::format("an internal error: {}", error.what());
    } catch (const Error&) {
    } catch (const std::exception& error) {
      if (!faults::was_of_program() && !(typeid(error) == typeid(std::bad_alloc) && !is_in_engine(faults::place())))
        wrong = fmt::format("a bare exception: {}", error.what());
    }
    wait_for_compiling();
    faults::disarm();
    if (succeeded && !results.is_close(expected_)) wrong = "it gives other numbers";
    return wrong;
  }

  const Case case_;
  const FaultKind kind_;
  const Start start_;
  const std::string folder_;
  Results expected_;
};

class Faults : public ::testing::TestWithParam<Case> {
 protected:
  Faults() : folder_(std::filesystem::temp_directory_path() / ("fermata_faults_" + std::to_string(getpid()))) {
    faults::share_with_children();
    void* const room = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    progress_ = static_cast<Progress*>(room);
  }
  ~Faults() override { munmap(progress_, sizeof(Progress)); }

  /// Tries points in processes of their own: one that dies is a defect, and another one goes on behind that point.
  void try_points(FaultKind kind, Start start, std::uint64_t count) {
    *progress_ = {};
    while (!progress_->finished && progress_->defects < 8) {
      std::filesystem::create_directories(folder_);
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) in_child(kind, start, count);
      int status = 0;
      waitpid(child, &status, 0);
      std::filesystem::remove_all(folder_);
      if (progress_->finished) break;
      if (progress_->points == 0) {
        ADD_FAILURE() << "a run without faults fails: status " << status << "\n" << progress_->text;
        break;
      }
      progress_->report(fmt::format("  {} point {} of {} ({}): the process {} {}\n{}",
                                    kKindNames[static_cast<int>(kind)], progress_->next, progress_->points,
                                    kStartNames[static_cast<int>(start)],
                                    WIFSIGNALED(status) ? "is ended by signal" : "exits with",
                                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), faults::place()));
      ++progress_->next;
    }
    failed_points += progress_->tried;
    EXPECT_EQ(progress_->defects, 0u) << progress_->text;
  }
  static void TearDownTestSuite() {
    std::printf("%llu points failed\n", static_cast<unsigned long long>(failed_points));
  }
  static inline std::uint64_t failed_points = 0;

 private:
  [[noreturn]] void in_child(FaultKind kind, Start start, std::uint64_t count) {
    faults::install();
    // Blocks of a thread that begins now are allocated one by one.
    std::thread([&] {
      try {
        Trial(GetParam(), kind, start, folder_).run(*progress_, count);
      } catch (const std::exception& error) { progress_->report(error.what()); }
    }).join();
    std::_Exit(0);
  }

  const std::string folder_;
  Progress* progress_;
};

TEST_P(Faults, GiveErrorsAndLeaveEverythingWhole) {
  const Program& program = *GetParam().program;
  if (program.is_on_device) {
    setenv("FERMATA_CUDA_EXECUTOR", "host", 1);
    try_points(FaultKind::cuda, Start::warm, points_to_try(10));
    try_points(FaultKind::allocation, Start::warm, points_to_try(5));
    unsetenv("FERMATA_CUDA_EXECUTOR");
    return;
  }
  const std::uint64_t count = program.is_small ? ~0ull : points_to_try(3);
  for (const FaultKind kind :
       {FaultKind::allocation, FaultKind::file, FaultKind::compile, FaultKind::library, FaultKind::thread})
    for (const Start start : {Start::cold, Start::seen, Start::warm}) {
      if (GetParam().mode == Mode::eager && start == Start::seen) continue;
      if (kind == FaultKind::compile && (start == Start::warm || GetParam().mode == Mode::eager)) continue;
      try_points(kind, start, count);
    }
}

TEST(Threads, BackgroundWorkRunsOnTheCallerWhereNoThreadStarts) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    faults::install();
    faults::arm(FaultKind::thread, 1);
    int done = 0;
    run_beside([&] { ++done; });
    wait_for_background();
    const bool on_caller = done == 1 && faults::has_failed();
    run_beside([&] { ++done; });
    wait_for_background();
    std::_Exit(on_caller && done == 2 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(Programs, Faults, ::testing::ValuesIn(all_cases()), name_of);

}  // namespace
}  // namespace fermata

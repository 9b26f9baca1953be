// Runs mixed programs for hours and checks that nothing grows (docs/testing.md, "Bounds and soak").
//   fermata_soak [--seconds N] [--plans N] [--kernels N] [--seed N]
//
// Every round runs the programs of tests/programs in both modes and in changing order, and compares their numbers with
// those of the first round; then new structures, new sizes, a failing allocation and a run that is cancelled. It prints
// a line of figures a minute. It fails if a number changes, if there are more plans or kernels than their limits, or if
// what it needs of memory, file descriptors, threads or mappings rises over the second half of the rounds. Rounds and
// not minutes: on a machine that others use too, an hour may hold ten rounds or a thousand.
#include <fermata/cancel.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "dispatch/kernel_cache.h"
#include "runtime/allocator.h"
#include "runtime/disk_cache.h"
#include "runtime/plan_cache.h"
#include "tests/programs/programs.h"

namespace fm = fermata;
using fm::Tensor;
using Clock = std::chrono::steady_clock;

namespace {

struct Options {
  double seconds = 60;
  std::size_t plans = 256, kernels = 256;
  std::uint64_t seed = 1;
};

[[noreturn]] void fail(const std::string& what) {
  std::printf("FAILED: %s\n", what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

struct Figures {
  static constexpr std::array kNames{"RSS MiB", "live MiB", "fds", "threads", "maps", "plans", "kernels", "code KiB"};
  std::array<double, kNames.size()> values{};
  static Figures now() {
    std::error_code ignored;
    const auto entries = [&](const char* folder) {
      return static_cast<double>(std::distance(std::filesystem::directory_iterator(folder, ignored), {}));
    };
    std::ifstream memory("/proc/self/statm"), maps("/proc/self/maps");
    double total = 0, resident = 0;
    memory >> total >> resident;
    double mappings = 0;
    for (std::string line; std::getline(maps, line);) ++mappings;
    const fm::KernelCacheSize kernels = fm::kernel_cache_size();
    constexpr double kMiB = 1 << 20;
    return {{resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / kMiB,
             static_cast<double>(fm::memory_stats().live_bytes) / kMiB, entries("/proc/self/fd"),
             entries("/proc/self/task"), mappings, static_cast<double>(fm::PlanCache::instance().size()),
             static_cast<double>(kernels.kernels), static_cast<double>(kernels.code_bytes) / 1024}};
  }
  void raise_to(const Figures& other) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], other.values[i]);
  }
};

/// A chain of random pointwise calls, nearly always of a structure that has not been there before.
Tensor random_chain(Tensor x, std::mt19937_64& random) {
  const Tensor first = x;
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  for (std::uint64_t left = 4 + below(12); left > 0; --left) switch (below(10)) {
      case 0: x = sin(x); break;
      case 1: x = tanh(x) + first; break;
      case 2: x = x * 0.5 - first; break;
      case 3: x = maximum(x, first); break;
      case 4: x = where(x > first, x, -x); break;
      case 5: x = abs(x) + 1; break;
      case 6: x = x - mean(x, {1}, true); break;
      case 7: x = sqrt(abs(x)); break;
      case 8: x = x.T().copy().T(); break;
      default: x = cos(x) * first; break;
    }
  return x;
}

class Soak {
 public:
  explicit Soak(const Options& options)
      : options_(options),
        random_(options.seed),
        folder_(std::filesystem::temp_directory_path() / ("fermata_soak_" + std::to_string(getpid()))),
        start_(Clock::now()) {
    std::filesystem::create_directories(folder_);
    fm::PlanCache::instance().set_limit(options.plans);
    fm::set_kernel_limit(options.kernels);
    fm::DiskCache::instance().set_limit(4 << 20);
  }
  ~Soak() { std::filesystem::remove_all(folder_); }
  Soak(const Soak&) = delete;
  Soak& operator=(const Soak&) = delete;

  void run() {
    std::printf("%9s %8s %9s", "minutes", "rounds", "programs");
    for (const char* const name : Figures::kNames) std::printf(" %9s", name);
    std::printf("\n");
    const double line = std::min(60.0, options_.seconds / 8);
    Figures most;
    for (double printed = 0; seconds() < options_.seconds;) {
      round();
      rounds_figures_.push_back(Figures::now());
      most.raise_to(rounds_figures_.back());
      most_ever_.raise_to(rounds_figures_.back());
      if (seconds() - printed < line) continue;
      printed = seconds();
      std::printf("%9.2f %8llu %9llu", printed / 60, rounds_, programs_);
      for (const double value : std::exchange(most, {}).values) std::printf(" %9.1f", value);
      std::printf("\n");
      std::fflush(stdout);
    }
    judge();
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void round() {
    fm::set_compile_policy(std::array{fm::CompilePolicy::background, fm::CompilePolicy::second_sight,
                                      fm::CompilePolicy::immediate}[rounds_ % 3]);
    std::vector<std::pair<const fm::programs::Program*, fm::Mode>> order;
    for (const fm::programs::Program& program : fm::programs::all())
      for (const fm::Mode mode : {fm::Mode::eager, fm::Mode::compiled}) order.emplace_back(&program, mode);
    std::shuffle(order.begin(), order.end(), random_);
    if (rounds_ != 0) order.resize(8);  // the rest of the time is for structures that are new
    for (const auto& [program, mode] : order) run_program(*program, mode);
    if (rounds_ % 16 == 5) side_by_side();
    for (int i = 0; i < 12; ++i) new_structure();
    failing_allocation();
    cancelled_run();
    if (rounds_ % 64 == 63) fm::clear_compile_caches();
    ++rounds_;
  }

  void run_program(const fm::programs::Program& program, fm::Mode mode) {
    const fm::ModeGuard guard(mode);
    fm::programs::Results results;
    program.run(results, folder_);
    ++programs_;
    const auto [first, is_new] = known_.try_emplace(std::pair(std::string_view(program.name), mode), results);
    if (!is_new && !first->second.is_close(results)) fail(std::string(program.name) + " gives other numbers");
  }

  /// Programs of several threads at once; those that change what belongs to the process are left out.
  void side_by_side() {
    std::array<std::string, 3> failures;
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < failures.size(); ++t)
        threads.emplace_back([&, t] {
          const std::string folder = folder_ / std::to_string(t);
          std::filesystem::create_directories(folder);
          for (const fm::programs::Program& program : fm::programs::all()) {
            if (std::string_view(program.name) == "disk_cache") continue;
            const fm::Mode mode = t == 0 ? fm::Mode::eager : fm::Mode::compiled;
            const fm::ModeGuard guard(mode);
            fm::programs::Results results;
            program.run(results, folder);
            const auto first = known_.find(std::pair(std::string_view(program.name), mode));
            if (!first->second.is_close(results)) failures[t] = program.name;
          }
        });
    }
    for (const std::string& failure : failures)
      if (!failure.empty()) fail(failure + " gives other numbers beside other threads");
  }

  void new_structure() {
    const std::uint64_t seed = random_();
    fm::Generator from(seed);
    const auto rows = static_cast<std::int64_t>(1 + random_() % 40),
               columns = static_cast<std::int64_t>(1 + random_() % 70);
    const Tensor x = fm::uniform({rows, columns}, -1, 1, fm::DType::f32, from).sync();
    const auto values = [&](fm::Mode mode) {
      const fm::ModeGuard guard(mode);
      fm::programs::Results results;
      for (int run = 0; run < 2; ++run) {
        std::mt19937_64 random(seed);
        results.add(random_chain(x, random));
      }
      return results;
    };
    if (!values(fm::Mode::eager).is_close(values(fm::Mode::compiled))) fail("a chain differs: " + std::to_string(seed));
  }

  void failing_allocation() {
    const Tensor x = fm::ones({256, 256}).sync();
    const Tensor y = exp(fm::broadcast_to(x, {64, 256, 256})) + 1;
    fm::wait_for_compiling();
    const std::size_t before = fm::set_memory_limit(1);
    bool failed = false;
    try {
      y.sync();
    } catch (const fm::OutOfMemoryError&) { failed = true; }
    fm::set_memory_limit(before);
    if (!failed && rounds_ == 0) fail("an allocation over the limit succeeds");
    const double expected = 65536.0 * 64 * (std::exp(1.0) + 1);
    if (std::abs(sum(y.astype(fm::DType::f64)).item<double>() - expected) > 1e-5 * expected)
      fail("values after a failed allocation");
  }

  void cancelled_run() {
    std::stop_source source;
    source.request_stop();
    const Tensor x = fm::full({100, 100}, 0.5);
    const Tensor y = sin(x) + static_cast<double>(random_() % 7);
    const double expected = y.copy().slice(0, 0, 1).to_vector<double>()[0];
    try {
      const fm::StopGuard guard(source.get_token());
      y.sync();
    } catch (const fm::Cancelled&) {}
    if (y.to_vector<double>()[0] != expected) fail("values after a run that was cancelled");
  }

  /// The line through the largest values of equal parts of the second half of the rounds, by the median of the slopes
  /// between all pairs (Theil, 1950; Sen, 1968): neither one peak nor one quiet spell moves it.
  struct Trend {
    double level = 0, rise = 0;  // the median, and how much higher the line ends than it begins
  };
  Trend trend_of(std::size_t figure) const {
    constexpr std::size_t kParts = 16;
    const std::size_t first = rounds_figures_.size() / 2, count = rounds_figures_.size() - first;
    std::array<double, kParts> most{};
    for (std::size_t i = 0; i < count; ++i) {
      double& part = most[i * kParts / count];
      part = std::max(part, rounds_figures_[first + i].values[figure]);
    }
    std::vector<double> slopes;
    for (std::size_t i = 0; i < kParts; ++i)
      for (std::size_t k = i + 1; k < kParts; ++k) slopes.push_back((most[k] - most[i]) / static_cast<double>(k - i));
    const auto median = [](auto& values) {
      std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
      return *(values.begin() + std::ssize(values) / 2);
    };
    return {median(most), median(slopes) * (kParts - 1)};
  }

  /// Caches fill up, are emptied and are emptied by half, so that they have no trend: only their limits hold.
  std::optional<double> limit_of(std::string_view figure) const {
    if (figure == "plans") return static_cast<double>(options_.plans);
    if (figure == "kernels") return static_cast<double>(options_.kernels);
    return std::nullopt;
  }

  void judge() {
    std::printf("%llu rounds, %llu programs\n", rounds_, programs_);
    bool grows = false;
    for (std::size_t i = 0; i < Figures::kNames.size(); ++i)
      if (const std::optional<double> limit = limit_of(Figures::kNames[i])) {
        const bool is_more = most_ever_.values[i] > *limit;
        std::printf("%-9s at most %.0f, limit %.0f%s\n", Figures::kNames[i], most_ever_.values[i], *limit,
                    is_more ? ": EXCEEDED" : "");
        grows = grows || is_more;
      }
    if (grows) fail("a cache exceeds its limit");
    if (rounds_figures_.size() < 32) return;        // too few for a trend
    const bool is_sample = options_.seconds < 600;  // too short for caches to be full
    for (std::size_t i = 0; i < Figures::kNames.size(); ++i) {
      const std::string_view name = Figures::kNames[i];
      if (limit_of(name)) continue;
      const Trend trend = trend_of(i);
      double most = trend.level * 0.05 + 4;
      if (name == "fds" || name == "threads") most = 1;
      // Code of as many kernels as there may be, and all of it may be new since the caches were emptied.
      if (name == "code KiB") most = trend.level;
      if (is_sample && (name == "RSS MiB" || name == "live MiB")) most = 256;
      if (is_sample && (name == "maps" || name == "code KiB")) continue;
      const bool is_more = trend.rise > most;
      std::printf("%-9s %.1f over the second half of the rounds, %+.1f from its begin to its end%s\n",
                  Figures::kNames[i], trend.level, trend.rise, is_more ? ": GROWS" : "");
      grows = grows || is_more;
    }
    if (grows) fail("something grows");
  }

  const Options options_;
  std::mt19937_64 random_;
  const std::filesystem::path folder_;
  const Clock::time_point start_;
  unsigned long long rounds_ = 0, programs_ = 0;
  std::map<std::pair<std::string_view, fm::Mode>, fm::programs::Results> known_;
  std::vector<Figures> rounds_figures_;
  Figures most_ever_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const double value = std::atof(argv[i + 1]);
    if (name == "--seconds") options.seconds = value;
    if (name == "--plans") options.plans = static_cast<std::size_t>(value);
    if (name == "--kernels") options.kernels = static_cast<std::size_t>(value);
    if (name == "--seed") options.seed = static_cast<std::uint64_t>(value);
  }
  try {
    Soak(options).run();
  } catch (const std::exception& error) { fail(error.what()); }
}

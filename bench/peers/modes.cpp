// Times random programs in both modes, alternating in one process, and compares compiled mode with eager mode.
//
//   fermata_modes FOLDER COUNT [--limit RATIO]
//
// FOLDER has random_0.txt and so on (bench/peers/compare.py --write-programs FOLDER). Times are CPU time of one thread,
// so that other processes hardly count. Prints each program whose ratio is above RATIO (1.05), in steady state and
// over the first 100 iterations, of which the compiled ones come first: nothing is known of their structure then.
#include <fermata/fermata.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/peers/random_program.h"
#include "runtime/thread_pool.h"

namespace fm = fermata;

namespace {

double now_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
}

struct Timed {
  std::string name;
  double compiled, eager;
  double ratio() const { return compiled / eager; }
};

class Timer {
 public:
  explicit Timer(const bench::Case& program) : program_(program.prepare()), inputs_(program.inputs()) {
    fm::sync(inputs_);
  }
  /// One run on average, in nanoseconds.
  double run(fm::Mode mode, int times) {
    const fm::ModeGuard guard(mode);
    const double start = now_ns();
    for (int i = 0; i < times; ++i) bench::run(program_, inputs_);
    return (now_ns() - start) / times;
  }
  Timed first_runs(const std::string& name) {
    run(fm::Mode::eager, 2);
    const double compiled = run(fm::Mode::compiled, 100);
    return {name, compiled, std::min(run(fm::Mode::eager, 100), run(fm::Mode::eager, 100))};
  }
  Timed steady_runs(const std::string& name) {
    const double one = run(fm::Mode::eager, 1), start = now_ns();
    const int times = std::clamp(static_cast<int>(2e5 / one), 1, 1000);
    while (now_ns() - start < std::clamp(60 * one, 3e7, 2e8)) run(fm::Mode::compiled, times);
    fm::wait_for_compiling();
    for (int i = 0; i < 30; ++i) run(fm::Mode::compiled, 1);
    Timed best{name, 1e30, 1e30};
    for (int turn = 0; turn < 41; ++turn) {
      best.eager = std::min(best.eager, run(fm::Mode::eager, times));
      best.compiled = std::min(best.compiled, run(fm::Mode::compiled, times));
    }
    return best;
  }

 private:
  bench::Program program_;
  bench::Tensors inputs_;
};

void report(const char* what, std::vector<Timed> all, double limit) {
  std::ranges::sort(all, std::ranges::greater{}, &Timed::ratio);
  double sum = 0;
  for (const Timed& t : all) sum += std::log(t.ratio());
  const auto above = std::ranges::count_if(all, [&](const Timed& t) { return t.ratio() > limit; });
  std::printf("%s: compiled / eager %.3f on average (geometric); %td of %zu above %.2f\n", what,
              std::exp(sum / static_cast<double>(all.size())), above, all.size(), limit);
  for (const Timed& t : all)
    if (t.ratio() > limit)
      std::printf("  %-12s %.3f  %.0f / %.0f ns\n", t.name.c_str(), t.ratio(), t.compiled, t.eager);
}

}  // namespace

int main(int argc, char** argv) {
  double limit = 1.05;
  if (argc == 5 && std::strcmp(argv[3], "--limit") == 0)
    limit = std::atof(argv[4]);
  else if (argc != 3) {
    std::fprintf(stderr, "usage: fermata_modes FOLDER COUNT [--limit RATIO]\n");
    return 2;
  }
  fm::set_thread_count(1);
  std::vector<Timed> first, steady;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    const std::string name = "random_" + std::to_string(i), path = std::string(argv[1]) + "/" + name + ".txt";
    std::ifstream text(path);
    if (!text) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      return 1;
    }
    Timer timer(bench::random_program(name, text, argv[1]));
    first.push_back(timer.first_runs(name));
    steady.push_back(timer.steady_runs(name));
  }
  report("steady state", steady, limit);
  report("first 100 iterations", first, limit);
}

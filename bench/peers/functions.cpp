// Times every function of the coverage table (frontend/coverage) at sizes that users have, in both modes.
//
//   fermata_functions [--elements N] [--dtype f32] [--limit RATIO] [--all] [NAME ...]
//
// The inputs of a row are grown to about N elements (200000) in several ways: one axis after the other, and all of
// them. A way that the call refuses is left out. Prints, tab-separated: the function, the sizes of its inputs, the
// time of one call in microseconds eagerly, compiled on sync, by compile(fn), and compiled by eager. Rows whose ratio
// is at most RATIO (1.05) are printed with --all only. bench/peers/functions.py compares with NumPy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "fermata/fermata.h"
#include "frontend/coverage/coverage.h"
#include "runtime/thread_pool.h"

namespace fm = fermata;
namespace coverage = fm::coverage;

namespace {

double now_us() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

using Inputs = std::vector<coverage::Input>;

std::int64_t largest(const Inputs& inputs) {
  std::int64_t most = 0;
  for (const coverage::Input& input : inputs) most = std::max(most, fm::element_count(input.sizes));
  return most;
}

/// The inputs with the sizes that `grows` names multiplied by the largest number that leaves them below `elements`.
Inputs grown(const Inputs& inputs, const std::set<std::int64_t>& grows, std::int64_t elements) {
  Inputs best = inputs;
  for (std::int64_t factor = 2;; factor += std::max<std::int64_t>(1, factor / 8)) {
    Inputs next = inputs;
    for (coverage::Input& input : next)
      for (std::int64_t& size : input.sizes)
        if (grows.contains(size)) size *= factor;
    if (largest(next) > elements) return best;
    best = std::move(next);
  }
}

/// Every way to grow them: each size alone, and all sizes but 1.
std::vector<Inputs> ways_to_grow(const Inputs& inputs, std::int64_t elements) {
  std::set<std::int64_t> sizes;
  for (const coverage::Input& input : inputs)
    for (const std::int64_t size : input.sizes)
      if (size > 1) sizes.insert(size);
  std::vector<Inputs> ways;
  for (const std::int64_t size : sizes) ways.push_back(grown(inputs, {size}, elements));
  if (sizes.size() > 1) ways.push_back(grown(inputs, sizes, elements));
  return ways;
}

std::string text_of(const Inputs& inputs) {
  std::string text;
  for (const coverage::Input& input : inputs) {
    if (!text.empty()) text += ' ';
    text += input.domain;
    if (input.limit != 0) text += fmt::format("({})", input.limit);
    text += fmt::format("[{}]", fmt::join(input.sizes, ","));
  }
  return text;
}

struct Times {
  double eager = 1e30, compiled = 1e30, function = 1e30;
  double ratio() const { return std::min(compiled, function) / eager; }
  double worst_ratio() const { return std::max(compiled, function) / eager; }
};

Times time_of(const coverage::Function& function, const std::vector<fm::Tensor>& x) {
  const auto run = [&](fm::Mode mode) {
    const fm::ModeGuard guard(mode);
    const coverage::Results results = function.call(x);
    fm::sync(results);
  };
  auto captured = fm::compile([&](const std::vector<fm::Tensor>& args) { return function.call(args); });
  bool captures = true;
  const auto run_function = [&] {
    const fm::ModeGuard guard(fm::Mode::compiled);
    const coverage::Results results = captured(x);
    fm::sync(results);
  };
  run(fm::Mode::eager);  // throws if it refuses these sizes
  try {
    run_function();
  } catch (const fm::Error&) {
    captures = false;  // a call that reads values
  }
  double start = now_us();
  for (int i = 0; i < 4; ++i) {
    run(fm::Mode::compiled);
    if (captures) run_function();
    if (now_us() - start > 3e5) break;
  }
  fm::wait_for_compiling();
  run(fm::Mode::eager);
  run(fm::Mode::compiled);
  if (captures) run_function();
  start = now_us();
  run(fm::Mode::eager);
  const double one = now_us() - start;
  const int times = std::clamp(static_cast<int>(200 / std::max(one, 0.1)), 1, 200);
  const auto best = [&](double& known, auto&& call) {
    const double begin = now_us();
    for (int i = 0; i < times; ++i) call();
    known = std::min(known, (now_us() - begin) / times);
  };
  Times result;
  start = now_us();
  for (int turn = 0; turn < 40; ++turn) {
    best(result.eager, [&] { run(fm::Mode::eager); });
    best(result.compiled, [&] { run(fm::Mode::compiled); });
    if (captures) best(result.function, run_function);
    if (turn >= 2 && now_us() - start > 4e4) break;
  }
  if (!captures) result.function = NAN;
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t elements = 200000;
  double limit = 1.05;
  bool all = false;
  fm::DType dtype = fm::DType::f32;
  std::set<std::string_view> names;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--all")
      all = true;
    else if (word == "--elements" && i + 1 < argc)
      elements = std::atoll(argv[++i]);
    else if (word == "--limit" && i + 1 < argc)
      limit = std::atof(argv[++i]);
    else if (word == "--dtype" && i + 1 < argc)
      dtype = fm::dtype_from_name(argv[++i]).value();
    else if (!word.starts_with("--"))
      names.insert(word);
    else {
      std::fprintf(stderr,
                   "usage: fermata_functions [--elements N] [--dtype f32] [--limit RATIO] [--all] [NAME ...]\n");
      return 2;
    }
  }
  double sum = 0;
  int count = 0, above = 0;
  for (const coverage::Function& function : coverage::functions()) {
    if (!function.call || (!names.empty() && !names.contains(function.name))) continue;
    const Inputs inputs = coverage::parse_inputs(function.inputs);
    for (const Inputs& way : ways_to_grow(inputs, elements)) {
      Times times;
      try {
        const std::vector<fm::Tensor> x = coverage::sample_inputs(way, dtype);
        fm::sync(x);
        times = time_of(function, x);
      } catch (const std::exception&) { continue; }
      const double worst = std::isnan(times.function) ? times.compiled / times.eager : times.worst_ratio();
      sum += std::log(times.compiled / times.eager), ++count;
      if (worst > limit) ++above;
      if (all || worst > limit) {
        fmt::print("{}\t{}\t{:.1f}\t{:.1f}\t{:.1f}\t{:.2f}\n", function.name, text_of(way), times.eager, times.compiled,
                   times.function, worst);
        std::fflush(stdout);
      }
    }
  }
  fmt::print("# compiled / eager {:.3f} in the geometric mean of {} calls; {} above {:.2f}\n", std::exp(sum / count),
             count, above, limit);
}

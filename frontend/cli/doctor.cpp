// `fermata doctor`: what was found on this machine, what is missing, and what to do about it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/calibration.h"
#include "dispatch/kernel_table.h"
#include "dispatch/measured_choices.h"
#include "fermata/fermata.h"
#include "fermata/inspect.h"
#include "fermata/onnx.h"
#include "frontend/cli/commands.h"
#include "frontend/cli/environment_variables.h"
#include "runtime/environment.h"
#include "runtime/thread_pool.h"

extern char** environ;

namespace fermata::cli {
namespace {

/// Prints findings, and keeps what is to be done for the end.
class Report {
 public:
  void line(std::string_view what, const std::string& found) { fmt::print("{:<20} {}\n", what, found); }
  void todo(std::string advice) { advice_.push_back(std::move(advice)); }
  void finish() const {
    fmt::print("\n");
    if (advice_.empty()) fmt::print("Nothing is missing.\n");
    for (const std::string& a : advice_) fmt::print("- {}\n", a);
  }

 private:
  std::vector<std::string> advice_;
};

/// The first line of a file that begins so; empty where there is none.
std::string first_line_with(const char* file, std::string_view start) {
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);)
    if (text.starts_with(start)) return text;
  return {};
}

void report_processor(Report& report) {
  const std::string model = first_line_with("/proc/cpuinfo", "model name");
  report.line("processor", model.empty() ? "unknown" : model.substr(model.find(':') + 2));
#if defined(__x86_64__)
  constexpr std::array<std::string_view, 12> kFeatures = {"avx2",        "fma",      "f16c",     "avx512f",
                                                          "avx512bw",    "avx512dq", "avx512vl", "avx512_bf16",
                                                          "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8"};
  const std::string flags = first_line_with("/proc/cpuinfo", "flags") + " ";
  std::vector<std::string_view> features;
  for (const std::string_view name : kFeatures)
    if (flags.find(fmt::format(" {} ", name)) != std::string::npos) features.push_back(name);
  report.line("features", features.empty() ? "none of the relevant ones" : fmt::format("{}", fmt::join(features, " ")));
#endif
}

void report_threads(Report& report) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  report.line("threads", fmt::format("{} in the pool; this process may use {} of {} processors", thread_count(),
                                     known ? CPU_COUNT(&allowed) : 0, sysconf(_SC_NPROCESSORS_ONLN)));
}

void report_memory(Report& report) {
  const auto bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  std::string pages = first_line_with("/sys/kernel/mm/transparent_hugepage/enabled", "");
  if (pages.empty()) pages = "unknown";
  report.line("memory", fmt::format("{:.1f} GiB; huge pages: {}", bytes / 0x1p30, pages));
  if (pages.find("[never]") != std::string::npos)
    report.todo(
        "Huge pages are off, so touching new memory costs four times as much. Write \"madvise\" to "
        "/sys/kernel/mm/transparent_hugepage/enabled.");
}

/// Compiles and runs a kernel, with a reason where that does not work.
void report_compiler(Report& report) {
  std::string failure_reason;
  Backend& cpu = *backend(BackendKey::cpu);
  if (!cpu.can_compile(&failure_reason)) {
    report.line("compiled kernels", "none: " + failure_reason);
    report.todo(
        "Kernels are not compiled; every program is interpreted op by op. Install llvm-19-dev (scripts/setup.sh does "
        "this) and rebuild, or set FERMATA_LLVM_PLUGIN to the path of the plugin.");
    return;
  }
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = full({1000}, 0.5f).sync();
  const std::uint64_t kernels = stats().kernels_compiled;
  const auto start = std::chrono::steady_clock::now();
  const float got = sum(exp(x) * 2).item<float>();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  set_compile_policy(before);
  report.line("compiled kernels",
              fmt::format("for {}, through the LLVM plugin; the first took {:.1f} ms", cpu.target(), ms));
  constexpr float kWanted = 3297.4425414f;  // 2000 e^0.5
  if (stats().kernels_compiled == kernels)
    report.todo("A kernel that should have been compiled was interpreted op by op.");
  if (!(got > kWanted * 0.9999f && got < kWanted * 1.0001f))
    report.todo(fmt::format("A compiled kernel gave {} for {}: please report it.", got, kWanted));
}

void report_libraries(Report& report) {
  const auto has = [](Op op, std::string_view name) {
    const BackendCell* cell = backend_cell(op, BackendKey::cpu);
    return cell != nullptr && std::any_of(cell->variants.begin(), cell->variants.end(),
                                          [&](const KernelVariant& v) { return v.name == name; });
  };
  struct Library {
    Op op;
    std::string_view variant, title, package, use, cost;
  };
  constexpr std::array<Library, 3> kLibraries = {
      {{Op::matmul, "onednn", "oneDNN", "libdnnl-dev", "matmul", "large matrix products are slower"},
       {Op::matmul, "libxsmm", "libxsmm", "libxsmm-dev", "matmul", "small matrix products are slower"},
       {Op::solve, "lapack", "LAPACK", "liblapacke-dev and libopenblas-serial-dev", "linear algebra",
        "linear algebra other than products is missing"}}};
  for (const Library& l : kLibraries) {
    const bool found = has(l.op, l.variant);
    report.line(l.title, found ? fmt::format("used for {}", l.use) : "not in this build");
    if (!found) report.todo(fmt::format("Without {} {}. Install {} and rebuild.", l.title, l.cost, l.package));
  }
}

void report_onnx(Report& report) {
  std::string reason;
  const bool found = onnx::available(&reason);
  report.line("ONNX", found ? "available" : "not available: " + reason);
  if (!found) report.todo("ONNX models cannot be read. Install libonnx-dev and libprotobuf-dev and rebuild.");
}

void report_ranks(Report& report) {
  std::string reason;
  const bool found = distributed::available(&reason);
  report.line("several processes", found ? "through MPI" : "not available: " + reason);
  if (!found) report.todo("Programs can only run as one process. Install libopenmpi-dev and openmpi-bin and rebuild.");
}

/// Multiply-adds per nanosecond of one core, and factors: what kernels of products and convolutions are chosen by.
void report_rates(bool measure) {
  if (measure) forget_choices();
  const Calibration c = calibration(measure);
  if (c.figures.empty()) return fmt::print("\nThis build has no matrix product kernels to measure.\n");
  fmt::print("\n{:<22} {:>8} {:>8}\n", "rates of products", "shipped", "in use");
  for (const CalibratedFigure& f : c.figures) fmt::print("{:<22} {:>8.4g} {:>8.4g}\n", f.name, f.shipped, f.used);
}

void report_cuda(Report& report) {
  Backend* const cuda = backend(BackendKey::cuda);
  if (cuda == nullptr) {
    report.line("CUDA", "not in this build");
    report.todo("CUDA is not part of this build (FERMATA_CUDA=OFF).");
    return;
  }
  for (const BackendFinding& f : cuda->findings()) {
    report.line(f.what, f.found);
    if (!f.advice.empty()) report.todo(f.advice);
  }
}

void report_environment(Report& report) {
  struct Line {
    std::string_view name, value, otherwise;
    std::string meaning;
  };
  std::vector<Line> lines{{"environment", "value", "default", "meaning"}};
  for (const EnvironmentVariable& v : kEnvironmentVariables) {
    const char* value = environment_variable(std::string(v.name).c_str());
    lines.push_back({v.name, value == nullptr ? "-" : value, v.otherwise, fmt::format("{}: {}", v.values, v.meaning)});
  }
  const auto width = [&](std::string_view Line::*column) {
    std::size_t most = 0;
    for (const Line& l : lines) most = std::max(most, (l.*column).size());
    return most;
  };
  const std::size_t name = width(&Line::name), value = width(&Line::value), otherwise = width(&Line::otherwise);
  fmt::print("\n");
  for (const Line& l : lines)
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {}\n", l.name, name, l.value, value, l.otherwise, otherwise, l.meaning);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry), variable = text.substr(0, text.find('='));
    const bool known = std::any_of(kEnvironmentVariables.begin(), kEnvironmentVariables.end(),
                                   [&](const EnvironmentVariable& v) { return v.name == variable; });
    if (variable.starts_with("FERMATA_") && !known)
      report.todo(fmt::format("{} is set, but the engine does not read it.", variable));
  }
}

void examine() {
  Report report;
  report.line("fermata", FERMATA_VERSION);
  report_processor(report);
  report_threads(report);
  report_memory(report);
  report_compiler(report);
  report_libraries(report);
  report_onnx(report);
  report_ranks(report);
  report.line("rates of products", calibration(false).source);
  const std::vector<std::string> replaced = replaced_choices();
  report.line("replaced choices", replaced.empty() ? "none" : replaced.front());
  for (std::size_t i = 1; i < replaced.size(); ++i) report.line("", replaced[i]);
  report_cuda(report);
  report_environment(report);
  report.finish();
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("doctor", "Show what was found on this machine, what is missing and how to fix it");
  const auto calibrates = std::make_shared<bool>(false);
  command->add_flag("--calibrate", *calibrates,
                    "Measure the kernels of matrix products and convolutions, store the results and show them");
  command->callback([calibrates] { *calibrates ? report_rates(true) : examine(); });
}

}  // namespace fermata::cli

// Runs a model in an ONNX file, for bench/peers/onnx_models.py: how long it takes to load, to give its first result and
// to run, and how much memory. With --export it is written as a program, for exported_models.py.
//   fermata_model_worker MODEL.onnx [NAME=FILE.npy ...] [--runs N] [--export FILE]
#include <fermata/export.h>
#include <fermata/fermata.h>
#include <fermata/onnx.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "process_usage.h"

namespace fm = fermata;

int main(int argc, char** argv) try {
  fm::NamedTensors inputs;
  int runs = 20;
  std::string program;
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "--runs") {
      runs = std::atoi(argv[++i]);
    } else if (text == "--export") {
      program = argv[++i];
    } else {
      const std::size_t equal = text.find('=');
      inputs.emplace(text.substr(0, equal), fm::load_npy(text.substr(equal + 1)));
    }
  }
  const double start = processor_ms();
  const fm::onnx::Model model = fm::onnx::load(argv[1]);
  const double load = processor_ms() - start;
  fm::set_compile_policy(fm::CompilePolicy::immediate);
  auto run = fm::compile([&](const fm::NamedTensors& in) { return model(in); });
  const auto sum_of = [](const fm::NamedTensors& results) {
    double total = 0;
    for (const auto& [name, x] : results) total += fm::sum(fm::abs(fm::astype(x, fm::DType::f64))).item<double>();
    return total;
  };
  const auto once = [&] {
    fm::NamedTensors results = run(inputs);
    for (auto& [name, x] : results) x.sync();
    return results;
  };
  const double first = processor_ms();
  fm::NamedTensors results = once();
  const double first_ms = processor_ms() - first;
  double best = 1e300;
  for (int i = 0; i < runs; ++i) {
    const double begin = processor_ms();
    results = once();
    best = std::min(best, processor_ms() - begin);
  }
  if (!program.empty())
    fm::export_program(
        program, [&](const fm::NamedTensors& in) { return model(in); }, inputs);
  std::printf("{\"load_ms\": %.3f, \"first_ms\": %.3f, \"run_ms\": %.4f, \"peak_mib\": %.1f, \"sum\": %.9g}\n", load,
              first_ms, best, peak_mib(), sum_of(results));
} catch (const fm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

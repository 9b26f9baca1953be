// Runs an exported program with nothing but libfermata_run, for bench/peers/exported_models.py.
//   fermata_program_worker FILE RUNS DTYPE:SIZE,SIZE,...:ELEMENTS ...
#include <fermata/program.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "process_usage.h"

int main(int argc, char** argv) try {
  std::vector<std::vector<char>> elements;
  std::vector<fermata::run::Tensor> inputs;
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    const std::size_t first = text.find(':'), second = text.find(':', first + 1);
    std::ifstream file(text.substr(second + 1), std::ios::binary);
    elements.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    std::vector<std::int64_t> sizes;
    for (std::size_t at = first; at < second; at = std::min(text.find(',', at + 1), second))
      sizes.push_back(std::atoll(text.c_str() + at + 1));
    const fermata_dtype dtype = text.substr(0, first) == "i64" ? FERMATA_I64 : FERMATA_F32;
    inputs.push_back({elements.back().data(), dtype, std::move(sizes)});
  }
  const double start = processor_ms();
  const fermata::run::Program program(argv[1]);
  const double load = processor_ms() - start;
  auto results = program.run(inputs);
  const double first = processor_ms();
  double best = 1e300;
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    const double begin = processor_ms();
    results = program.run(inputs);
    best = std::min(best, processor_ms() - begin);
  }
  const fermata::run::Tensor result = results[0];
  double total = 0, count = 1;
  for (const std::int64_t size : result.sizes) count *= static_cast<double>(size);
  for (double i = 0; i < count; ++i) {
    const float x = static_cast<const float*>(result.data)[static_cast<std::size_t>(i)];
    total += x < 0 ? -x : x;
  }
  std::printf("{\"load_ms\": %.3f, \"first_ms\": %.3f, \"run_ms\": %.4f, \"peak_mib\": %.1f, \"sum\": %.9g}\n", load,
              first, best, peak_mib(), total);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

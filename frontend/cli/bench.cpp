// `fermata bench FILE`: what the ops of a program or model cost one by one, and what the fused plan costs.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "fermata/inspect.h"
#include "fermata/modes.h"
#include "frontend/cli/commands.h"
#include "frontend/cli/model_file.h"
#include "frontend/cli/program_file.h"
#include "frontend/cli/progress.h"
#include "frontend/engine/graph_runner.h"
#include "runtime/thread_pool.h"

namespace fermata::cli {
namespace {

struct Options : ProgramOptions {
  int threads = 0;
};

std::string_view mode_name() { return mode() == Mode::eager ? "op by op" : "as one plan"; }

void bench_model(const Options& options) {
  const onnx::Model model = onnx::load(options.file, {});
  const NamedTensors inputs = make_inputs(model, options.inputs, options.sizes, options.seed);
  Progress progress("timing the model");
  std::size_t runs = 0;
  const ModeComparison comparison = compare_modes([&] {
    progress.step(runs++, mode_name());
    std::vector<Tensor> outputs;
    for (auto& [name, y] : model(inputs)) outputs.push_back(y);
    return outputs;
  });
  fmt::print("{} thread{}\n\n{}", thread_count(), thread_count() == 1 ? "" : "s", to_string(comparison));
}

void bench(const Options& options) {
  if (is_model(options.file)) {
    if (options.threads > 0) set_thread_count(options.threads);
    return bench_model(options);
  }
  const Graph graph = read_program(options.file);
  if (options.threads > 0) set_thread_count(options.threads);
  const std::vector<Tensor> inputs = make_inputs(graph, input_files(options.file, options.inputs), options.seed);
  Progress progress("timing the program");
  std::size_t runs = 0;
  const ModeComparison comparison = compare_modes([&] {
    progress.step(runs++, mode_name());
    return run_graph(graph, inputs);
  });
  fmt::print("{} ops, {} thread{}\n\n{}", graph.nodes.size() - inputs.size(), thread_count(),
             thread_count() == 1 ? "" : "s", to_string(comparison));
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Time a program in eager and compiled mode");
  const auto options = std::make_shared<Options>();
  add_program_options(*command, *options);
  command->add_option("--threads", options->threads, "Threads of the engine's pool");
  command->callback([options] { bench(*options); });
}

}  // namespace fermata::cli

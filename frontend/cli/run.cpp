// `fermata run FILE.ir`: computes a program and prints its outputs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "fermata/fermata.h"
#include "fermata/inspect.h"
#include "frontend/cli/commands.h"
#include "frontend/cli/model_file.h"
#include "frontend/cli/program_file.h"
#include "frontend/engine/graph_runner.h"

namespace fermata::cli {
namespace {

struct Options : ProgramOptions {
  std::string mode = "compiled";
  std::string output;
  bool check = false;
};

std::vector<Tensor> play(const Graph& graph, const std::vector<Tensor>& inputs, Mode mode) {
  const ModeGuard guard(mode);
  std::vector<Tensor> outputs = run_graph(graph, inputs);
  for (const Tensor& t : outputs) t.sync();
  return outputs;
}

ReferenceTensor reference_of(const Tensor& x) {
  ReferenceTensor r{x.dtype(), x.shape(), {}, {}};
  if (is_floating(x.dtype()))
    r.floats = x.to_vector<double>();
  else if (x.dtype() == DType::u64)
    for (const std::uint64_t v : x.to_vector<std::uint64_t>()) r.integers.push_back(static_cast<std::int64_t>(v));
  else
    r.integers = x.to_vector<std::int64_t>();
  return r;
}

/// The largest difference, and how large the values are.
std::string difference(const ReferenceTensor& a, const ReferenceTensor& b) {
  if (!is_floating(a.dtype)) {
    const auto differs = [&](std::size_t i) { return a.integers[i] != b.integers[i]; };
    std::size_t count = 0;
    for (std::size_t i = 0; i < a.integers.size(); ++i) count += differs(i);
    return count == 0 ? "equal" : fmt::format("{} of {} elements differ", count, a.integers.size());
  }
  double largest = 0, scale = 0;
  for (std::size_t i = 0; i < a.floats.size(); ++i) {
    const double x = a.floats[i], y = b.floats[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double d = std::abs(x - y);
    if (!(d <= largest)) largest = d;
    if (std::isfinite(y)) scale = std::max(scale, std::abs(y));
  }
  return largest == 0 ? "equal" : fmt::format("differ by up to {:.3g}, among values up to {:.3g}", largest, scale);
}

void check(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<ReferenceTensor> plain;
  for (const Tensor& x : inputs) plain.push_back(reference_of(x));
  const std::vector<ReferenceTensor> exact = evaluate_reference(graph, plain);
  const std::vector<Tensor> eager = play(graph, inputs, Mode::eager), compiled = play(graph, inputs, Mode::compiled);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const ReferenceTensor e = reference_of(eager[i]), c = reference_of(compiled[i]);
    fmt::print(
        "output {} (%{})\n  eager and reference     {}\n  compiled and reference  {}\n  eager and compiled      {}\n",
        i, graph.outputs[i], difference(e, exact[i]), difference(c, exact[i]), difference(e, c));
  }
}

void run_model(const Options& options) {
  const onnx::Model model = onnx::load(options.file, {});
  const NamedTensors inputs = make_inputs(model, options.inputs, options.sizes, options.seed);
  set_compile_policy(CompilePolicy::immediate);
  const ModeGuard guard(options.mode == "eager" ? Mode::eager : Mode::compiled);
  const NamedTensors outputs = model(inputs);
  for (const onnx::ValueInfo& output : model.outputs()) {
    const Tensor& y = outputs.at(output.name);
    if (options.output.empty()) fmt::print("{} = {}\n", output.name, to_string(y));
  }
  if (!options.output.empty()) save_npz(options.output, outputs);
}

void run(const Options& options) {
  if (is_model(options.file)) {
    if (options.check) throw CLI::ValidationError("--check", "is only for programs in text form");
    return run_model(options);
  }
  const Graph graph = read_program(options.file);
  const std::vector<Tensor> inputs = make_inputs(graph, input_files(options.file, options.inputs), options.seed);
  set_compile_policy(CompilePolicy::immediate);  // a program is run once: compiled is to mean compiled
  if (options.check) return check(graph, inputs);
  const std::vector<Tensor> outputs = play(graph, inputs, options.mode == "eager" ? Mode::eager : Mode::compiled);
  for (std::size_t i = 0; i < outputs.size(); ++i) fmt::print("%{} = {}\n", graph.outputs[i], to_string(outputs[i]));
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Run a program and print its outputs");
  const auto options = std::make_shared<Options>();
  add_program_options(*command, *options);
  command->add_option("--output", options->output,
                      "Write the outputs of a model to an .npz file instead of printing them");
  command->add_option("--mode", options->mode, "eager or compiled")
      ->check(CLI::IsMember({"eager", "compiled"}))
      ->capture_default_str();
  command->add_flag("--check", options->check, "Compare both modes with double precision instead of printing values");
  command->callback([options] { run(*options); });
}

}  // namespace fermata::cli

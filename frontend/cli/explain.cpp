// `fermata explain FILE.ir`: what the compiler makes of a program, and why.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "fermata/inspect.h"
#include "frontend/cli/commands.h"
#include "frontend/cli/model_file.h"
#include "frontend/cli/program_file.h"
#include "frontend/engine/graph_runner.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/profile/report_page.h"
#include "passes/pipeline.h"

namespace fermata::cli {
namespace {

struct Options : ProgramOptions {
  std::string page;
};

/// The page has what both modes cost, too: the program runs on inputs from files, or on made-up ones.
void write_page(const Options& options) {
  ReportContents contents{.title = "Fermata report: " + options.file};
  const Graph graph = read_program(options.file);
  contents.programs.push_back({0, graph, BackendKey::cpu});
  const std::vector<Tensor> inputs = make_inputs(graph, input_files(options.file, options.inputs), options.seed);
  contents.modes = to_string(compare_modes([&] { return run_graph(graph, inputs); }));
  write_file("explain", options.page, {report_page(contents)}, {});
  fmt::print("{}\n", options.page);
}

void explain_model(const Options& options) {
  const onnx::Model model = onnx::load(options.file, {});
  std::vector<Tensor> outputs;
  for (auto& [name, y] : model(make_inputs(model, options.inputs, options.sizes, options.seed))) outputs.push_back(y);
  if (options.page.empty()) return fmt::print("{}", explain(outputs, {}));
  ReportContents contents{.title = "Fermata report: " + options.file};
  contents.programs.push_back({0, parse_graph(dump_ir(outputs, {})), BackendKey::cpu});
  write_file("explain", options.page, {report_page(contents)}, {});
  fmt::print("{}\n", options.page);
}

}  // namespace

void add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Show the plan that the compiler makes of a program, and why");
  const auto options = std::make_shared<Options>();
  add_program_options(*command, *options);
  command->add_option("--html", options->page,
                      "Write an HTML report with graphs, code and the times of both modes instead");
  command->callback([options] {
    if (is_model(options->file)) return explain_model(*options);
    if (!options->page.empty()) return write_page(*options);
    fmt::print("{}", explain_plan(read_program(options->file), BackendKey::cpu));
  });
}

}  // namespace fermata::cli

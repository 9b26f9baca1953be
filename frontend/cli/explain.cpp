// `fermata explain FILE.ir`: what the compiler makes of a program, and why.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "fermata/inspect.h"
#include "frontend/cli/commands.h"
#include "frontend/cli/model_file.h"
#include "frontend/cli/program_file.h"
#include "passes/pipeline.h"

namespace fermata::cli {

void add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Show what the compiler makes of a program, and why");
  const auto file = std::make_shared<std::string>();
  const auto sizes = std::make_shared<std::vector<std::string>>();
  command->add_option("file", *file, "Program, as dump_ir() writes it, or a model in an ONNX file")->required();
  command->add_option("--size", *sizes, "Of a model, NAME=N: a size that has a name; 1 where none is given");
  command->callback([file, sizes] {
    if (!is_model(*file)) return fmt::print("{}", explain_plan(read_program(*file), BackendKey::cpu));
    const onnx::Model model = onnx::load(*file, {});
    std::vector<Tensor> outputs;
    for (auto& [name, y] : model(make_inputs(model, {}, *sizes, 0))) outputs.push_back(y);
    fmt::print("{}", explain(outputs, {}));
  });
}

}  // namespace fermata::cli

// `fermata onnx`: which operators of ONNX there are, and what a model has.
#include "fermata/onnx.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "frontend/cli/commands.h"

namespace fermata::cli {
namespace {

void print_operators(bool as_page) {
  std::size_t supported = 0, all = 0;
  if (as_page) fmt::print("| operator | | |\n|---|---|---|\n");
  for (const onnx::OperatorInfo& op : onnx::operators({})) {
    ++all, supported += op.supported ? 1 : 0;
    if (as_page)
      fmt::print("| {} | {} | {} |\n", op.name, op.supported ? "supported" : "refused", op.note);
    else
      fmt::print("{:<28} {:<10} {}\n", op.name, op.supported ? "supported" : "refused", op.note);
  }
  if (!as_page) fmt::print("\n{} of {} operators of ai.onnx are supported\n", supported, all);
}

void describe(const std::string& file) {
  const onnx::Model model = onnx::load(file, {});
  for (const onnx::ValueInfo& input : model.inputs()) fmt::print("input   {}\n", to_string(input));
  for (const onnx::ValueInfo& output : model.outputs()) fmt::print("output  {}\n", to_string(output));
}

}  // namespace

void add_onnx(CLI::App& app) {
  CLI::App* command = app.add_subcommand("onnx", "Show the contents of an ONNX model, or the supported operators");
  const auto file = std::make_shared<std::string>();
  const auto operators = std::make_shared<bool>(false), page = std::make_shared<bool>(false);
  command->add_option("file", *file, "The model");
  command->add_flag("--operators", *operators, "List the operators of ai.onnx");
  command->add_flag("--markdown", *page, "Print in the format of the table in docs/onnx.md");
  command->callback([file, operators, page] {
    if (file->empty() == !*operators) throw CLI::ValidationError("onnx", "a file, or --operators");
    if (*operators) return print_operators(*page);
    describe(*file);
  });
}

}  // namespace fermata::cli

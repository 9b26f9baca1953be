// `fermata explain FILE.ir`: what the compiler makes of a program, and why.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "frontend/cli/commands.h"
#include "frontend/cli/program_file.h"
#include "passes/pipeline.h"

namespace fermata::cli {

void add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Show what the compiler makes of a program, and why");
  const auto file = std::make_shared<std::string>();
  command->add_option("file", *file, "Program, as dump_ir() writes it")->required();
  command->callback([file] { fmt::print("{}", explain_plan(read_program(*file), BackendKey::cpu)); });
}

}  // namespace fermata::cli

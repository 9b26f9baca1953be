// `fermata opt --passes a,b FILE.ir`: runs passes over a program and prints the result.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "frontend/cli/commands.h"
#include "frontend/cli/program_file.h"
#include "passes/pipeline.h"

namespace fermata::cli {

void add_opt(CLI::App& app) {
  CLI::App* command = app.add_subcommand("opt", "Run passes over a program and print the result");
  struct Options {
    std::string file;
    std::vector<std::string> passes = pass_names();
  };
  const auto options = std::make_shared<Options>();
  command->add_option("file", options->file, "Program in the format of dump_ir()")->required();
  command->add_option("--passes", options->passes, "Passes to run, in order, separated by commas")
      ->delimiter(',')
      ->default_str(fmt::format("{}", fmt::join(options->passes, ",")));
  command->callback(
      [options] { fmt::print("{}", to_string(run_passes(read_program(options->file), options->passes))); });
}

}  // namespace fermata::cli

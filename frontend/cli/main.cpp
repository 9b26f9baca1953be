// The program `fermata`: looks inside the engine from a shell.
//
// Exit status: 0 where all went well, 1 after an error of the library (its message is on standard error), 2 for a
// command line that makes no sense.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "frontend/cli/commands.h"
#include "ir/error.h"

namespace {

constexpr int kFailed = 1, kWrongUsage = 2;

int run(int argc, char** argv) {
  CLI::App app("Fermata, a lazy tensor engine: inspect programs, kernels and this machine.", "fermata");
  app.set_version_flag("--version", "fermata " FERMATA_VERSION);
  app.require_subcommand(1);
  fermata::cli::add_demo(app);
  fermata::cli::add_explain(app);
  fermata::cli::add_opt(app);
  fermata::cli::add_run(app);
  fermata::cli::add_bench(app);
  fermata::cli::add_report(app);
  fermata::cli::add_ops(app);
  fermata::cli::add_onnx(app);
  fermata::cli::add_cache(app);
  fermata::cli::add_doctor(app);
  try {
    app.parse(argc, argv);  // runs the callback of the subcommand
  } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : kWrongUsage; }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const fermata::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
  } catch (const std::exception& error) { fmt::print(stderr, "fermata: {}\n", error.what()); }
  return kFailed;
}

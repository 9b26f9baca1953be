// The subcommands of `fermata`, one source file each. Each adds itself to the command line with a callback, which
// prints to standard output and throws the library's errors.
#pragma once

#include <CLI/CLI.hpp>

namespace fermata::cli {

void add_bench(CLI::App& app);
void add_cache(CLI::App& app);
void add_demo(CLI::App& app);
void add_doctor(CLI::App& app);
void add_explain(CLI::App& app);
void add_onnx(CLI::App& app);
void add_ops(CLI::App& app);
void add_opt(CLI::App& app);
void add_report(CLI::App& app);
void add_run(CLI::App& app);

/// What `fermata ops --coverage` prints.
void print_coverage();
/// What `fermata ops --numerics` prints.
void print_numerics();

}  // namespace fermata::cli

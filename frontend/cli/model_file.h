// Models in ONNX files, tensors to run them on, and the options of the commands that take a program or a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "fermata/onnx.h"

namespace fermata::cli {

/// Of commands that take a program or a model, and run it.
struct ProgramOptions {
  std::string file;
  std::vector<std::string> inputs, sizes;
  std::uint64_t seed = 0;
};
void add_program_options(CLI::App& command, ProgramOptions& options);

/// Does the name of a file end in .onnx?
bool is_model(const std::string& path);

/// One tensor for each input that has no default: from its file, given as "NAME=FILE.npy", else made up. Sizes that
/// have a name are 1 unless "NAME=N" gives them. Made-up floats are normal, integers 0 or 1.
///
/// Errors   ValueError FM1332 for other forms.
NamedTensors make_inputs(const onnx::Model& model, const std::vector<std::string>& files,
                         const std::vector<std::string>& sizes, std::uint64_t seed);

}  // namespace fermata::cli

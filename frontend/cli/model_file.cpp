// See model_file.h.
#include "frontend/cli/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "fermata/fermata.h"

namespace fermata::cli {
namespace {

[[noreturn]] void throw_input(std::string_view what, std::string_view hint) {
  throw ValueError(1332, format_error(1332, "ValueError", what, {}, {}, hint));
}

std::map<std::string, std::string> assignments(const std::vector<std::string>& texts, std::string_view option,
                                               std::string_view example) {
  std::map<std::string, std::string> all;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      throw_input(fmt::format("{} {}: expected NAME=VALUE", option, text),
                  fmt::format("for example {} {}", option, example));
    all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

std::int64_t size_in(const std::string& name, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || value < 0)
    throw_input(fmt::format("--size {}={}: not a size", name, text), {});
  return value;
}

Tensor made_up(const onnx::ValueInfo& input, const std::map<std::string, std::string>& sizes, Generator& generator) {
  if (!input.dtype || !input.sizes)
    throw_input(fmt::format("input {}: the model does not specify its dtype and sizes", to_string(input)),
                fmt::format("--input {}=FILE.npy", input.name));
  Shape shape;
  for (const onnx::Dimension& d : *input.sizes) {
    const auto given = sizes.find(d.name);
    shape.push_back(d.size ? *d.size : given == sizes.end() ? 1 : size_in(d.name, given->second));
  }
  if (is_floating(*input.dtype)) return normal(shape, 0, 1, *input.dtype, generator);
  if (*input.dtype == DType::boolean) return bernoulli(0.5, shape, generator);
  return randint(0, 2, shape, *input.dtype, generator);
}

}  // namespace

void add_program_options(CLI::App& command, ProgramOptions& options) {
  command.add_option("file", options.file, "Program in the format of dump_ir(), or an ONNX model")->required();
  command.add_option(
      "--input", options.inputs,
      "%N=FILE: reads input %N from a .npy or .csv file; other inputs are random. For a model: NAME=FILE.npy");
  command.add_option("--size", options.sizes, "NAME=N: sets a named size of a model; default 1");
  command.add_option("--seed", options.seed, "Seed of the random inputs")->capture_default_str();
}

bool is_model(const std::string& path) { return path.ends_with(".onnx"); }

NamedTensors make_inputs(const onnx::Model& model, const std::vector<std::string>& files,
                         const std::vector<std::string>& sizes, std::uint64_t seed) {
  const auto paths = assignments(files, "--input", "x=x.npy"), numbers = assignments(sizes, "--size", "batch=8");
  for (const auto& [name, text] : numbers) {
    const auto names_it = [&](const onnx::ValueInfo& input) {
      return input.sizes && std::ranges::any_of(*input.sizes, [&](const auto& d) { return d.name == name; });
    };
    if (std::ranges::none_of(model.inputs(), names_it))
      throw_input(fmt::format("--size {}={}: no input has a size of that name", name, text), {});
  }
  Generator generator(seed);
  NamedTensors inputs;
  for (const auto& [name, path] : paths) inputs[name] = load_npy(path, {});
  for (const onnx::ValueInfo& input : model.required_inputs())
    if (!inputs.contains(input.name)) inputs[input.name] = made_up(input, numbers, generator).sync();
  return inputs;
}

}  // namespace fermata::cli

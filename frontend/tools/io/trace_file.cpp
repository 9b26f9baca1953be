// The text of a traced program, and save_trace(): the text and the tensors that it starts from as files.
#include <fmt/format.h>

#include <filesystem>
#include <functional>

#include "fermata/io.h"
#include "fermata/ops.h"
#include "fermata/trace.h"
#include "frontend/tools/io/file.h"

namespace fermata {
namespace {

/// What stands after the number of an input: nothing, or the file of its value.
using FileOf = std::function<std::string(ValueId node, const Tensor& value)>;

std::string describe(const TracedOutput& output) {
  switch (output.kind) {
    case TracedOutput::Kind::result: return fmt::format("result {}", output.index);
    case TracedOutput::Kind::argument: return fmt::format("the final value of argument {}", output.index);
    case TracedOutput::Kind::outside: break;
  }
  if (output.index == TracedOutput::kNoConstant) return "the final value of a captured tensor";
  return fmt::format("the final value of constant {}", output.index);
}

std::string text_of(const Trace& trace, const FileOf& file_of) {
  std::string text;
  for (std::size_t i = 0; i < trace.arguments.size(); ++i)
    text += fmt::format("// %{}{}: argument {}\n", i, file_of(static_cast<ValueId>(i), trace.arguments[i]), i);
  for (std::size_t i = 0; i < trace.constants.size(); ++i) {
    const TracedConstant& c = trace.constants[i];
    text += fmt::format("// %{}{}: constant {}\n", c.node, file_of(c.node, c.value), i);
  }
  for (std::size_t i = 0; i < trace.outputs.size(); ++i)
    text += fmt::format("// %{}: {}\n", trace.graph.outputs[i], describe(trace.outputs[i]));
  for (const std::string& read : trace.frozen) text += fmt::format("// frozen: {}\n", read);
  return text + to_string(trace.graph, true);
}

}  // namespace

std::string to_string(const Trace& trace) {
  return text_of(trace, [](ValueId, const Tensor&) { return std::string(); });
}

void save_trace(const Trace& trace, const std::string& path, Location where) {
  const std::filesystem::path program(path);
  const auto save = [&](ValueId node, const Tensor& value) {
    const std::string name = fmt::format("{}.{}.npy", program.stem().string(), node);
    // NumPy has no bf16; f32 holds every value of it, and the program casts what it reads.
    const Tensor elements = value.dtype() == DType::bf16 ? astype(value, DType::f32, where) : value;
    save_npy((program.parent_path() / name).string(), elements, where);
    return fmt::format(" = \"{}\"", name);
  };
  write_file("save_trace", path, {text_of(trace, save)}, where);
}

}  // namespace fermata

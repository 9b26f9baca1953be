// Writing models: each node of a trace becomes one or a few nodes. Sizes are those of the trace.
#include "frontend/onnx/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "frontend/onnx/model_writer.h"
#include "frontend/onnx/save_dynamic.h"
#include "frontend/tools/io/file.h"
#include "ir/error.h"

namespace fermata::onnx {
namespace {

constexpr std::int64_t kOpset = 18, kFormat = 8;

}  // namespace

const ::onnx::ModelProto& Writer::write() {
  model_.set_ir_version(kFormat);
  model_.set_producer_name("fermata");
  model_.set_producer_version(FERMATA_VERSION);
  model_.add_opset_import()->set_version(kOpset);
  graph_.set_name(options_.name);
  std::map<std::string, std::vector<std::string>> unsupported;
  std::size_t argument = 0;
  for (ValueId v = 0; v < trace_.graph.nodes.size(); ++v) {
    const GraphNode& n = trace_.graph.nodes[v];
    if (n.op == Op::input) {
      if (argument < trace_.arguments.size()) {
        names_[v] =
            argument < options_.input_names.size() ? options_.input_names[argument] : fmt::format("x{}", argument);
        describe(graph_.add_input(), names_[v], n);
        ++argument;
        continue;
      }
      for (const TracedConstant& c : trace_.constants)
        if (c.node == v) names_[v] = constant(c.value);
      continue;
    }
    const auto found = emitters().find(n.op);
    if (found == emitters().end()) {
      unsupported[std::string(name(n.op))].push_back(short_location(n.where));
      names_.emplace(v, Name());
      continue;
    }
    names_[v] = found->second(*this, n);
  }
  if (!unsupported.empty()) {
    std::string text;
    for (const auto& [op, places] : unsupported)
      text +=
          fmt::format("\n  {}  at {}{}", op,
                      fmt::join(places.begin(), places.begin() + std::min<std::ptrdiff_t>(3, std::ssize(places)), ", "),
                      places.size() > 3 ? ", ..." : "");
    throw UnsupportedError(
        2307, format_error(2307, "UnsupportedError", "onnx: ops without an ONNX equivalent" + text, {}, where_));
  }
  std::size_t result = 0;
  for (std::size_t i = 0; i < trace_.outputs.size(); ++i) {
    if (trace_.outputs[i].kind != TracedOutput::Kind::result)
      throw UnsupportedError(
          2307, format_error(2307, "UnsupportedError", "onnx: in-place writes are not supported", {}, where_));
    const Name name =
        result < options_.output_names.size() ? options_.output_names[result] : fmt::format("y{}", result);
    const ValueId v = trace_.graph.outputs[i];
    node("Identity", {name_of(v)}, {name});
    describe(graph_.add_output(), name, at(v));
    ++result;
  }
  return model_;
}

void save_model(std::span<const Trace> traces, const std::string& path, const SaveOptions& options, Location where) {
  std::vector<::onnx::ModelProto> models;
  for (const Trace& trace : traces) {
    Writer writer(trace, options, where);
    models.push_back(writer.write());
  }
  if (models.size() > 1) make_sizes_dynamic(models, traces, options, where);
  std::string bytes;
  if (!models[0].SerializeToString(&bytes))
    throw UnsupportedError(
        2307, format_error(2307, "UnsupportedError", "onnx: models above 2 GiB are not supported", {}, where));
  write_file("onnx", path, {bytes}, where);
}

}  // namespace fermata::onnx

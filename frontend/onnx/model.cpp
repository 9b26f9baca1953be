// Models: reading files, and running nodes. What the plugin gives is at the end.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "frontend/onnx/known.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"
#include "frontend/onnx/plugin.h"
#include "frontend/onnx/prepare.h"
#include "frontend/onnx/save.h"
#include "frontend/tools/io/file.h"
#include "ir/error.h"

namespace fermata::onnx {
namespace {

/// Throws the error again with a line more; as the class that it is.
template <class... E> [[noreturn]] void throw_again(const Error& error, const std::string& text) {
  (
      [&] {
        if (dynamic_cast<const E*>(&error) != nullptr) throw E(error.code(), text);
      }(),
      ...);
  throw Error(error.code(), text);
}

[[noreturn]] void throw_in_node(const Error& error, const Node& node) {
  std::string text = error.what();
  constexpr std::string_view kLine = "\n  node ";
  if (text.find(kLine) != std::string::npos) throw;  // of a graph inside this node
  // The scope is the one around the model: the node has a line of its own.
  if (const std::size_t in = text.find("\n  in "); in != std::string::npos && !node.scope.module_name().empty()) {
    const std::size_t end = std::min(text.find('\n', in + 1), text.size());
    const std::size_t begin = std::min(text.find_first_not_of(' ', in + 5), end);  // a name may be blank
    if (std::string_view(text).substr(begin, end - begin).ends_with(node.scope.module_name()))
      current_scope().empty() ? text.erase(in, end - in) : text.replace(begin, end - begin, current_scope());
  }
  throw_again<ShapeError, DTypeError, IndexError, DeviceError, ValueError, FileError, GradientError, ParseError,
              UserError, UnsupportedError, OutOfMemoryError, InternalError>(
      error, fmt::format("{}{}'{}' ({})", text, kLine, node.name, node.op));
}

bool all_known(const Node& node, const Frame& frame) {
  for (const Place place : node.inputs)
    if (place != kNoPlace && !frame.values[static_cast<std::size_t>(place)].known()) return false;
  return true;
}

void put_results(const Node& node, std::vector<Value>& results, Frame& frame) {
  for (std::size_t k = 0; k < node.outputs.size(); ++k)
    if (node.outputs[k] != kNoPlace)
      frame.values[static_cast<std::size_t>(node.outputs[k])] = k < results.size() ? std::move(results[k]) : Value();
}

/// False where the results are too large to be known.
bool run_at_once(NodeCall& call) {
  const AtOnce guard;
  call.at_once = true;
  try {
    call.node().row->run(call);
  } catch (const TooLargeToKnow&) {
    call.results.clear();
    call.at_once = false;
    return false;
  }
  for (Value& result : call.results)
    if (result.kind() == Value::Kind::tensor && can_be_known(result.tensor())) result = Value(result.tensor(), true);
  return true;
}

void run_custom(NodeCall& call);

void run_node(const Node& node, Frame& frame) {
  const nn::ModuleScope scope(node.scope);
  NodeCall call(node, frame);
  if (node.function != nullptr) {
    std::vector<Value> inputs;
    for (std::size_t k = 0; k < node.function->inputs.size(); ++k)
      inputs.push_back(call.has(k) ? call.value(k) : Value());
    call.results = call_body(*node.function, std::move(inputs), frame);
  } else if (node.row == nullptr) {
    run_custom(call);
  } else if (!node.row->is_pure || !all_known(node, frame) || !run_at_once(call)) {
    node.row->run(call);
  }
  put_results(node, call.results, frame);
}

/// The value of an attribute as an argument of a schema.
fermata::Value argument_of(const NodeCall& c, const SchemaArgument& wanted) {
  if (!c.has_attribute(wanted.name)) {
    if (wanted.default_value) return *wanted.default_value;
    if (wanted.type.optional) return {};
    c.fail(fmt::format("attribute '{}' of operator {}::{} is missing", wanted.name, c.node().domain, c.node().op));
  }
  switch (wanted.type.kind) {
    case TypeKind::integer:
      if (wanted.type.list) return fermata::Value(c.attr_integers(wanted.name));
      return fermata::Value(c.attr(wanted.name, std::int64_t{0}));
    case TypeKind::floating:
      if (wanted.type.list) return fermata::Value(c.attr_numbers(wanted.name));
      return fermata::Value(c.attr(wanted.name, 0.0));
    case TypeKind::boolean: return fermata::Value(c.attr(wanted.name, std::int64_t{0}) != 0);
    case TypeKind::string: return fermata::Value(c.attr(wanted.name, ""));
    case TypeKind::dtype: return fermata::Value(dtype_of_code(c.attr(wanted.name, std::int64_t{0}), c.where));
    default:
      c.fail(fmt::format("argument '{}' of operator {}::{} cannot be an attribute", wanted.name, c.node().domain,
                         c.node().op));
  }
}

/// Tensors are operands in the order of the schema, all else are attributes by name.
void run_custom(NodeCall& c) {
  const OperatorHandle& op = *c.node().custom;
  Stack stack;
  std::size_t next = 0;
  for (const SchemaArgument& wanted : op.schema().arguments) {
    const bool is_operand = wanted.type.kind == TypeKind::tensor || wanted.type.kind == TypeKind::operand;
    if (!is_operand) {
      stack.push_back(argument_of(c, wanted));
    } else if (wanted.type.list) {
      std::vector<Tensor> rest;
      for (; next < c.input_count(); ++next) rest.push_back(c.in(next));
      stack.emplace_back(std::move(rest));
    } else if (c.has(next) || !wanted.type.optional) {
      stack.emplace_back(c.in(next++));
    } else {
      stack.emplace_back();
      ++next;
    }
  }
  op.call_boxed(stack, c.where);
  for (const fermata::Value& result : stack) {
    if (!result.is<Tensor>()) c.fail("a result is not a tensor");
    c.give(Value(result.as<Tensor>()));
  }
}

class LoadedModel final : public detail::Program {
 public:
  LoadedModel(const std::string& file, Location where) {
    path = file;
    TensorReader reader(file, where);
    ::onnx::ModelProto proto;
    {
      const auto mapped = MappedFile::open("onnx", file, where);
      const std::string_view bytes = mapped->bytes();
      if (bytes.size() > std::numeric_limits<int>::max())
        throw_damaged(file, "larger than 2 GiB, the limit of protocol buffers", where);
      if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
        throw_damaged(file, "not an ONNX model, or truncated", where);
    }
    prepared_ = prepare(proto, reader, *this);
    fold_constants(where);
  }

  std::vector<Tensor> run(std::span<const Tensor> given, const NamedTensors& now, const detail::Buffers& buffered,
                          Location where) const override {
    Frame frame{prepared_.initial, where, {}};
    const auto at = [&](Place place) -> Value& { return frame.values[static_cast<std::size_t>(place)]; };
    for (const auto& [name, place] : prepared_.parameters) at(place) = Value(now.at(name));
    for (const auto& [name, place] : prepared_.buffers) at(place) = Value(buffered.at(name).value);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (!given[i].defined()) continue;
      at(prepared_.body.inputs[i]) = Value(given[i]);
      frame.device = given[i].device(where);
    }
    run_body(prepared_.body, frame);
    std::vector<Tensor> results;
    for (const Place place : prepared_.body.outputs) {
      const Value& value = at(place);
      if (value.kind() != Value::Kind::tensor)
        throw UnsupportedError(2306, format_error(2306, "UnsupportedError",
                                                  fmt::format("onnx: {}: an output is not a tensor", path), {}, where));
      results.push_back(value.tensor());
    }
    return results;
  }

 private:
  /// Nodes that depend on no input and no parameter run now, once.
  void fold_constants(Location where) {
    Frame frame{prepared_.initial, where, {}};
    std::vector<Node> left;
    for (Node& node : prepared_.body.nodes) {
      const bool folds = node.row != nullptr && node.row->is_pure && all_known(node, frame);
      bool done = false;
      if (folds) try {
          NodeCall call(node, frame);
          done = run_at_once(call);
          for (const Value& v : call.results) done = done && v.known();
          if (done) put_results(node, call.results, frame);
        } catch (const Error&) {}  // the run tells
      if (!done) left.push_back(std::move(node));
    }
    prepared_.body.nodes = std::move(left);
    prepared_.initial = std::move(frame.values);
  }

  Prepared prepared_;
};

std::vector<OperatorInfo> list_operators() {
  std::vector<OperatorInfo> infos;
  for (const OperatorRow* row : all_operators())
    infos.push_back({std::string(row->name), row->run != nullptr, std::string(row->note)});
  return infos;
}

const Plugin kPlugin{kPluginVersion,
                     [](const std::string& path, Location where) -> std::shared_ptr<const detail::Program> {
                       return std::make_shared<LoadedModel>(path, where);
                     },
                     &list_operators, &save_model};

}  // namespace

void run_body(const Body& body, Frame& frame) {
  for (const auto& [place, value] : body.constants) frame.values[static_cast<std::size_t>(place)] = value;
  for (const Node& node : body.nodes) {
    try {
      run_node(node, frame);
    } catch (const Error& error) { throw_in_node(error, node); } catch (const std::length_error& error) {
      throw FileError(
          2302, format_error(2302, "FileError",
                             fmt::format("onnx: node '{}' ({}): numbers are out of range", node.name, node.op), {},
                             frame.where));
    }
    for (const Place place : node.done) frame.values[static_cast<std::size_t>(place)] = Value();
  }
}

std::vector<Value> call_body(const Body& body, std::vector<Value> inputs, Frame& frame) {
  for (std::size_t k = 0; k < body.inputs.size(); ++k)
    frame.values[static_cast<std::size_t>(body.inputs[k])] = k < inputs.size() ? std::move(inputs[k]) : Value();
  run_body(body, frame);
  std::vector<Value> outputs;
  for (const Place place : body.outputs) outputs.push_back(frame.values[static_cast<std::size_t>(place)]);
  return outputs;
}

}  // namespace fermata::onnx

extern "C" __attribute__((visibility("default"))) const fermata::onnx::Plugin* fermata_onnx_plugin() {
  return &fermata::onnx::kPlugin;
}

// A model as it runs: nodes whose names have become places, and the values in those places.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/library.h"
#include "fermata/nn/module.h"
#include "frontend/onnx/value.h"

namespace fermata::onnx {

class NodeCall;

/// A row of the table of operators (operators.h).
struct OperatorRow {
  std::string_view name;
  void (*run)(NodeCall&);  // null: refused, and the note says why
  std::string_view note = {};
  std::uint32_t host_operands = 0;  // bit k: operand k is read while the node is called
  bool is_pure = true;              // the results depend on the operands alone, and are tensors
};

/// AttributeProto.AttributeType.
enum class AttributeType : std::uint8_t {
  undefined,
  number,
  integer,
  text,
  tensor,
  graph,
  numbers,
  integers,
  texts,
  tensors,
  graphs,
  sparse_tensor,
  sparse_tensors,
  type,
  types
};
/// As the ONNX specification writes it: "INT".
std::string_view name(AttributeType type);

struct Body;
/// NodeCall::attribute() hands out one whose type has been checked.
struct Attribute {
  std::string name;
  AttributeType type = AttributeType::undefined;
  std::int64_t integer = 0;
  double number = 0;
  std::string text{};
  std::vector<std::int64_t> integers{};
  std::vector<double> numbers{};
  std::vector<std::string> texts{};
  Tensor tensor{};
  bool holds_text = false;  // a tensor of strings, which Fermata has not
  std::shared_ptr<const Body> body{};
};

/// A place in a frame; values of all graphs of a model have places of their own.
using Place = std::int32_t;
inline constexpr Place kNoPlace = -1;

struct Node {
  const OperatorRow* row = nullptr;  // null for operators of the program
  std::shared_ptr<const OperatorHandle> custom{};
  std::shared_ptr<const Body> function{};  // of a call of a function of the file
  std::string name{}, op{}, domain{};
  nn::Named scope{};       // that name, for what the node calls
  std::int64_t opset = 0;  // of its domain
  std::vector<Place> inputs{}, outputs{};
  std::vector<Attribute> attributes{};
  std::vector<Place> done{};  // values with no reader after this node
};

/// A graph, or the body of a function or of a control flow node.
struct Body {
  std::vector<Node> nodes;
  std::vector<Place> inputs, outputs;
  std::vector<std::pair<Place, Value>> constants;  // of a body of its own, set where it begins
};

/// The values of one run.
struct Frame {
  std::vector<Value> values;
  Location where;
  Device device;  // of the inputs
};

/// Runs the nodes of a body. Its inputs are in the frame, and so are its outputs afterwards.
void run_body(const Body& body, Frame& frame);
/// The same with inputs to be put there first; gives the outputs.
std::vector<Value> call_body(const Body& body, std::vector<Value> inputs, Frame& frame);

}  // namespace fermata::onnx

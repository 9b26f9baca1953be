// One call of a node: operands, attributes and results, for the functions that stand behind operators.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx/graph.h"
#include "runtime/operand.h"

namespace fermata::onnx {

/// The dtype of a number in TensorProto.DataType; UnsupportedError FM2306 for those that Fermata has not.
DType dtype_of_code(std::int64_t code, Location where);

class NodeCall {
 public:
  NodeCall(const Node& node, Frame& frame) : where(frame.where), frame_(frame), node_(node) {}

  std::size_t input_count() const { return node_.inputs.size(); }
  std::size_t output_count() const { return node_.outputs.size(); }
  /// Is result k wanted?
  bool wants(std::size_t k) const { return k < node_.outputs.size() && node_.outputs[k] != kNoPlace; }
  bool has(std::size_t k) const;
  const Value& value(std::size_t k) const;
  /// FM2302 where it is left out or no tensor.
  Tensor in(std::size_t k) const;
  /// Undefined where it is left out.
  Tensor optional(std::size_t k) const { return has(k) ? in(k) : Tensor(); }
  /// As an operand of a pointwise op: a number where operand k is one that is known, and `beside` has its axes.
  Operand operand(std::size_t k, unsigned beside_rank) const;

  // Elements of an operand, read now.
  std::vector<std::int64_t> integers(std::size_t k) const;
  std::vector<double> numbers(std::size_t k) const;
  std::int64_t integer(std::size_t k) const;
  double number(std::size_t k) const;

  // Attributes. FM2302 where one is of another type than is asked for.
  bool has_attribute(std::string_view name) const { return find_attribute(name) != nullptr; }
  /// Null where it is left out.
  const Attribute* attribute(std::string_view name, AttributeType type) const;
  std::int64_t attr(std::string_view name, std::int64_t otherwise) const;
  double attr(std::string_view name, double otherwise) const;
  std::string attr(std::string_view name, const char* otherwise) const;
  std::vector<std::int64_t> attr_integers(std::string_view name, std::vector<std::int64_t> otherwise = {}) const;
  std::vector<double> attr_numbers(std::string_view name) const;
  std::vector<std::string> attr_texts(std::string_view name) const;
  /// Integers of an attribute in earlier versions of an operator and of operand k in later ones; empty where there are
  /// neither.
  std::optional<std::vector<std::int64_t>> list(std::string_view name, std::size_t k) const;
  const Body& body(std::string_view name) const;

  void give(Value result) { results.push_back(std::move(result)); }
  /// UnsupportedError FM2306: a form of the operator that is not supported.
  [[noreturn]] void refuse(std::string_view what) const;
  /// FileError FM2302: what no valid model has.
  [[noreturn]] void fail(std::string_view what) const;

  const Node& node() const { return node_; }
  Frame& frame() const { return frame_; }
  std::int64_t opset() const { return node_.opset; }

  /// To be called before a result that may be much larger than the operands is made.
  void will_make(const Shape& shape) const;

  const Location where;
  std::vector<Value> results;
  bool at_once = false;  // all operands are known, and so are the results to be

 private:
  const Attribute* find_attribute(std::string_view name) const;
  Frame& frame_;
  const Node& node_;
};

/// FM2302 unless low <= value <= 2^40: numbers of a file that sizes are computed from.
void check_number(const NodeCall& c, std::int64_t value, std::int64_t low);
/// Sizes before an axis, and from it on.
std::vector<std::int64_t> sizes_before(const Tensor& x, std::int64_t axis);
Shape sizes_from(const Tensor& x, std::int64_t axis);
/// An axis counted from the front; FM2302 if it is out of range.
std::int64_t axis_of(const NodeCall& c, std::int64_t axis, unsigned rank);

}  // namespace fermata::onnx

// See node_call.h.
#include "frontend/onnx/node_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "frontend/onnx/known.h"
#include "frontend/onnx/tensor_proto.h"
#include "ir/error.h"

namespace fermata::onnx {

DType dtype_of_code(std::int64_t code, Location where) {
  const auto dtype = dtype_of_code(code);
  if (!dtype)
    throw UnsupportedError(2306, format_error(2306, "UnsupportedError",
                                              fmt::format("onnx: element type {} is not supported", code), {}, where));
  return *dtype;
}

void NodeCall::refuse(std::string_view what) const {
  throw UnsupportedError(
      2306, format_error(2306, "UnsupportedError", fmt::format("onnx: {}: {}", node_.op, what), {}, where));
}
void NodeCall::fail(std::string_view what) const {
  throw FileError(2302, format_error(2302, "FileError", fmt::format("onnx: {}: {}", node_.op, what), {}, where));
}

bool NodeCall::has(std::size_t k) const {
  return k < node_.inputs.size() && node_.inputs[k] != kNoPlace &&
         frame_.values[static_cast<std::size_t>(node_.inputs[k])].is_there();
}

const Value& NodeCall::value(std::size_t k) const {
  if (!has(k)) fail(fmt::format("input {} is missing", k));
  return frame_.values[static_cast<std::size_t>(node_.inputs[k])];
}

Tensor NodeCall::in(std::size_t k) const {
  const Value& v = value(k);
  if (v.kind() != Value::Kind::tensor) fail(fmt::format("input {} must be a tensor", k));
  return v.known() && !at_once && frame_.device != Device() ? v.tensor().to(frame_.device, where) : v.tensor();
}

Operand NodeCall::operand(std::size_t k, unsigned beside_rank) const {
  const Value& v = value(k);
  if (v.kind() != Value::Kind::tensor) fail(fmt::format("input {} must be a tensor", k));
  const Tensor& x = v.tensor();
  if (!v.known() || at_once || x.element_count() != 1 || x.rank() > beside_rank) return {x, where};
  if (is_floating(x.dtype())) return {Scalar(x.item<double>(where)), where};
  if (x.dtype() == DType::boolean) return {Scalar(x.item<bool>(where)), where};
  if (is_integer(x.dtype()) && x.dtype() != DType::u64) return {Scalar(x.item<std::int64_t>(where)), where};
  return {x, where};
}

std::vector<std::int64_t> NodeCall::integers(std::size_t k) const {
  const Value& v = value(k);
  if (v.kind() != Value::Kind::tensor) fail(fmt::format("input {} must be a tensor", k));
  return v.tensor().to_vector<std::int64_t>(where);
}
std::vector<double> NodeCall::numbers(std::size_t k) const {
  const Value& v = value(k);
  if (v.kind() != Value::Kind::tensor) fail(fmt::format("input {} must be a tensor", k));
  return v.tensor().to_vector<double>(where);
}
std::int64_t NodeCall::integer(std::size_t k) const {
  const auto all = integers(k);
  if (all.size() != 1) fail(fmt::format("input {} must hold one element", k));
  return all[0];
}
double NodeCall::number(std::size_t k) const {
  const auto all = numbers(k);
  if (all.size() != 1) fail(fmt::format("input {} must hold one element", k));
  return all[0];
}

std::string_view name(AttributeType type) {
  constexpr std::string_view kNames[] = {
      "UNDEFINED", "FLOAT",   "INT",    "STRING",        "TENSOR",         "GRAPH",      "FLOATS",     "INTS",
      "STRINGS",   "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};
  return kNames[static_cast<std::size_t>(type)];
}

const Attribute* NodeCall::find_attribute(std::string_view name) const {
  for (const Attribute& a : node_.attributes)
    if (a.name == name) return &a;
  return nullptr;
}
const Attribute* NodeCall::attribute(std::string_view name, AttributeType type) const {
  const Attribute* const a = find_attribute(name);
  if (a != nullptr && a->type != type)
    fail(fmt::format("attribute '{}' is of type {}, not {}", name, onnx::name(a->type), onnx::name(type)));
  return a;
}
std::int64_t NodeCall::attr(std::string_view name, std::int64_t otherwise) const {
  const Attribute* const a = attribute(name, AttributeType::integer);
  return a == nullptr ? otherwise : a->integer;
}
double NodeCall::attr(std::string_view name, double otherwise) const {
  const Attribute* const a = attribute(name, AttributeType::number);
  return a == nullptr ? otherwise : a->number;
}
std::string NodeCall::attr(std::string_view name, const char* otherwise) const {
  const Attribute* const a = attribute(name, AttributeType::text);
  return a == nullptr ? std::string(otherwise) : a->text;
}
std::vector<std::int64_t> NodeCall::attr_integers(std::string_view name, std::vector<std::int64_t> otherwise) const {
  const Attribute* const a = attribute(name, AttributeType::integers);
  return a == nullptr ? otherwise : a->integers;
}
std::vector<double> NodeCall::attr_numbers(std::string_view name) const {
  const Attribute* const a = attribute(name, AttributeType::numbers);
  return a == nullptr ? std::vector<double>() : a->numbers;
}
std::vector<std::string> NodeCall::attr_texts(std::string_view name) const {
  const Attribute* const a = attribute(name, AttributeType::texts);
  return a == nullptr ? std::vector<std::string>() : a->texts;
}
std::optional<std::vector<std::int64_t>> NodeCall::list(std::string_view name, std::size_t k) const {
  if (const Attribute* const a = attribute(name, AttributeType::integers)) return a->integers;
  if (has(k)) return integers(k);
  return std::nullopt;
}
const Body& NodeCall::body(std::string_view name) const {
  const Attribute* const a = attribute(name, AttributeType::graph);
  if (a == nullptr || a->body == nullptr) fail(fmt::format("graph attribute '{}' is missing", name));
  return *a->body;
}

void NodeCall::will_make(const Shape& shape) const {
  if (!at_once) return;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size > kMostKnownElements) throw TooLargeToKnow();
    count *= size;
    if (count > kMostKnownElements) throw TooLargeToKnow();
  }
}

void check_number(const NodeCall& c, std::int64_t value, std::int64_t low) {
  if (value < low || value > std::int64_t{1} << 40)
    c.fail(fmt::format("size, stride or padding {} is out of range", value));
}

std::vector<std::int64_t> sizes_before(const Tensor& x, std::int64_t axis) {
  const Shape shape = x.shape();
  return {shape.begin(), shape.begin() + std::min<std::int64_t>(axis, shape.rank())};
}
Shape sizes_from(const Tensor& x, std::int64_t axis) {
  const Shape shape = x.shape();
  return Shape(std::span(shape.begin() + std::min<std::int64_t>(axis, shape.rank()), shape.end()));
}

std::int64_t axis_of(const NodeCall& c, std::int64_t axis, unsigned rank) {
  const auto axes = static_cast<std::int64_t>(rank);
  if (axis < -axes || axis >= axes) c.fail(fmt::format("axis {} is out of range for rank {}", axis, rank));
  return axis < 0 ? axis + axes : axis;
}

}  // namespace fermata::onnx

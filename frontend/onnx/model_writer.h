// A model that is being written, node by node: what the functions behind ops (save_ops.cpp) are made of.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "frontend/onnx/save.h"
#include "frontend/onnx/schema.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/io/packed_bits.h"
#include "ir/error.h"

namespace fermata::onnx {

using Name = std::string;
using Names = std::vector<std::string>;

class Writer {
 public:
  Writer(const Trace& trace, const SaveOptions& options, Location where)
      : trace_(trace), options_(options), where_(where), graph_(*model_.mutable_graph()) {}

  const ::onnx::ModelProto& write();

  // What the functions below are made of.
  Name emit(const std::string& op, const Names& inputs) {
    const Name result = fmt::format("t{}", next_++);
    node(op, inputs, {result});
    return result;
  }
  ::onnx::NodeProto* node(const std::string& op, const Names& inputs, const Names& outputs) {
    ::onnx::NodeProto* const n = graph_.add_node();
    n->set_op_type(op);
    n->set_name(fmt::format("{}_{}", op, graph_.node_size()));
    for (const Name& i : inputs) n->add_input(i);
    for (const Name& o : outputs) n->add_output(o);
    return n;
  }
  /// The node that was made last.
  Writer& with(const std::string& name, std::int64_t value) {
    ::onnx::AttributeProto* const a = attribute(name, ::onnx::AttributeProto::INT);
    a->set_i(value);
    return *this;
  }
  Writer& with(const std::string& name, std::span<const std::int64_t> values) {
    ::onnx::AttributeProto* const a = attribute(name, ::onnx::AttributeProto::INTS);
    for (const std::int64_t v : values) a->add_ints(v);
    return *this;
  }
  Writer& with(const std::string& name, const std::string& text) {
    ::onnx::AttributeProto* const a = attribute(name, ::onnx::AttributeProto::STRING);
    a->set_s(text);
    return *this;
  }
  Name integers(std::span<const std::int64_t> values) {
    ::onnx::TensorProto* const t = initializer(DType::i64);
    t->add_dims(std::ssize(values));
    t->set_raw_data(std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
    return t->name();
  }
  Name integers(std::initializer_list<std::int64_t> values) {
    return integers(std::span(std::data(values), values.size()));
  }
  Name number(double value, DType dtype) { return constant(astype(full({}, value, DType::f64), dtype)); }
  Name bits(std::uint64_t value, DType compute, DType wanted) {
    double number_of_bits = 0;
    if (compute == DType::f64)
      number_of_bits = std::bit_cast<double>(value);
    else if (compute == DType::f32)
      number_of_bits = std::bit_cast<float>(static_cast<std::uint32_t>(value));
    else if (is_signed(compute)) {
      const unsigned unused = 64 - 8 * static_cast<unsigned>(byte_size(compute));
      number_of_bits = static_cast<double>(static_cast<std::int64_t>(value << unused) >> unused);
    } else
      number_of_bits = static_cast<double>(value);
    return number(number_of_bits, wanted);
  }
  Name constant(const Tensor& x) {
    ::onnx::TensorProto* const t = initializer(x.dtype());
    put_elements(*t, x);
    return t->name();
  }
  Name cast(const Name& x, DType from, DType to) {
    if (from == to) return x;
    const Name y = emit("Cast", {x});
    with("to", code_of_dtype(to));
    return y;
  }

  /// Another result of the node that was made last.
  Name second_result() {
    const Name result = fmt::format("t{}", next_++);
    graph_.mutable_node(graph_.node_size() - 1)->add_output(result);
    return result;
  }

  const GraphNode& at(ValueId v) const { return trace_.graph.nodes[v]; }
  const Name& name_of(ValueId v) const { return names_.at(v); }
  /// Operand k of a node, in a dtype.
  Name operand(const GraphNode& n, std::size_t k, std::optional<DType> dtype = {}) {
    const GraphOperand& o = n.operands[k];
    const DType computed = operand_dtype(trace_.graph, n);
    if (o.is_scalar()) return bits(n.scalars[o.scalar], scalar_dtype(computed), dtype.value_or(computed));
    return cast(name_of(o.value), at(o.value).dtype, dtype.value_or(at(o.value).dtype));
  }
  DType computes_in(const GraphNode& n) const { return operand_dtype(trace_.graph, n); }

 private:
  ::onnx::AttributeProto* attribute(const std::string& name, ::onnx::AttributeProto::AttributeType type) {
    ::onnx::AttributeProto* const a = graph_.mutable_node(graph_.node_size() - 1)->add_attribute();
    a->set_name(name);
    a->set_type(type);
    return a;
  }
  ::onnx::TensorProto* initializer(DType dtype) {
    ::onnx::TensorProto* const t = graph_.add_initializer();
    t->set_name(fmt::format("c{}", next_++));
    t->set_data_type(code_of_dtype(dtype));
    return t;
  }
  void put_elements(::onnx::TensorProto& t, const Tensor& x) const {
    for (const std::int64_t s : x.shape()) t.add_dims(s);
    const Tensor dense = x.contiguous(where_).sync(where_);
    if (is_small(x.dtype())) {
      t.set_raw_data(packed_elements(dense, where_));
      return;
    }
    const auto copy = [&]<class T>() {
      // A vector of bool has no bytes to copy.
      const auto all = stored_elements<std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>>(dense, where_);
      t.set_raw_data(std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(all[0])));
    };
    if (!visit_real(x.dtype(), copy))
      throw UnsupportedError(2307, format_error(2307, "UnsupportedError",
                                                fmt::format("onnx: elements of type {}", name(x.dtype())), {}, where_));
  }
  void describe(::onnx::ValueInfoProto* value, const Name& name, const GraphNode& n) const {
    value->set_name(name);
    auto* const type = value->mutable_type()->mutable_tensor_type();
    type->set_elem_type(code_of_dtype(n.dtype));
    auto* const shape = type->mutable_shape();
    for (const std::int64_t s : n.shape) shape->add_dim()->set_dim_value(s);
  }

  const Trace& trace_;
  const SaveOptions& options_;
  Location where_;
  ::onnx::ModelProto model_;
  ::onnx::GraphProto& graph_;
  std::unordered_map<ValueId, Name> names_;
  int next_ = 0;
};

/// The nodes of a call, and the name of its result.
using Emit = std::function<Name(Writer&, const GraphNode&)>;
/// The ops that have a form in ONNX.
const std::map<Op, Emit>& emitters();

}  // namespace fermata::onnx

// Small models, written by tests message by message.
#pragma once

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "frontend/onnx/schema.h"

namespace fermata::test {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;

/// A size, or a name that stands for any.
struct Size {
  Size(int number) : number(number) {}
  Size(const char* name) : name(name) {}
  std::int64_t number = 0;
  std::string name{};
};

/// Adds attributes to a node: node.set("axis", 1).
class NodeBuilder {
 public:
  explicit NodeBuilder(NodeProto* node) : node_(node) {}
  NodeBuilder& set(const std::string& name, std::int64_t value) {
    AttributeProto* const a = add(name, AttributeProto::INT);
    a->set_i(value);
    return *this;
  }
  NodeBuilder& set(const std::string& name, int value) { return set(name, std::int64_t{value}); }
  NodeBuilder& set(const std::string& name, float value) {
    AttributeProto* const a = add(name, AttributeProto::FLOAT);
    a->set_f(value);
    return *this;
  }
  NodeBuilder& set(const std::string& name, std::initializer_list<std::int64_t> values) {
    AttributeProto* const a = add(name, AttributeProto::INTS);
    for (const std::int64_t v : values) a->add_ints(v);
    return *this;
  }
  NodeBuilder& set(const std::string& name, const char* text) {
    AttributeProto* const a = add(name, AttributeProto::STRING);
    a->set_s(text);
    return *this;
  }
  NodeBuilder& set_floats(const std::string& name, std::initializer_list<float> values) {
    AttributeProto* const a = add(name, AttributeProto::FLOATS);
    for (const float v : values) a->add_floats(v);
    return *this;
  }
  NodeBuilder& set(const std::string& name, const GraphProto& graph) {
    AttributeProto* const a = add(name, AttributeProto::GRAPH);
    *a->mutable_g() = graph;
    return *this;
  }
  NodeBuilder& domain(const std::string& name) {
    node_->set_domain(name);
    return *this;
  }

 private:
  AttributeProto* add(const std::string& name, AttributeProto::AttributeType type) {
    AttributeProto* const a = node_->add_attribute();
    a->set_name(name);
    a->set_type(type);
    return a;
  }
  NodeProto* node_;
};

class GraphBuilder {
 public:
  GraphBuilder& input(const std::string& name, int type, std::initializer_list<Size> sizes) {
    describe(proto.add_input(), name, type, sizes);
    return *this;
  }
  GraphBuilder& output(const std::string& name, int type = TensorProto::FLOAT, std::initializer_list<Size> sizes = {}) {
    auto* const value = proto.add_output();
    if (sizes.size() != 0) return describe(value, name, type, sizes), *this;
    value->set_name(name);
    value->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    return *this;
  }
  GraphBuilder& floats(const std::string& name, std::initializer_list<std::int64_t> sizes,
                       const std::vector<float>& values) {
    TensorProto* const t = tensor(name, TensorProto::FLOAT, sizes);
    for (const float v : values) t->add_float_data(v);
    return *this;
  }
  GraphBuilder& integers(const std::string& name, std::initializer_list<std::int64_t> sizes,
                         const std::vector<std::int64_t>& values) {
    TensorProto* const t = tensor(name, TensorProto::INT64, sizes);
    for (const std::int64_t v : values) t->add_int64_data(v);
    return *this;
  }
  TensorProto* tensor(const std::string& name, int type, std::initializer_list<std::int64_t> sizes) {
    TensorProto* const t = proto.add_initializer();
    t->set_name(name);
    t->set_data_type(type);
    for (const std::int64_t s : sizes) t->add_dims(s);
    return t;
  }
  NodeBuilder node(const std::string& op, std::initializer_list<std::string> inputs,
                   std::initializer_list<std::string> outputs) {
    NodeProto* const n = proto.add_node();
    n->set_op_type(op);
    n->set_name(op + "_" + std::to_string(proto.node_size()));
    for (const std::string& i : inputs) n->add_input(i);
    for (const std::string& o : outputs) n->add_output(o);
    return NodeBuilder(n);
  }

  GraphProto proto;

 private:
  static void describe(::onnx::ValueInfoProto* value, const std::string& name, int type,
                       std::initializer_list<Size> sizes) {
    value->set_name(name);
    auto* const tensor = value->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    auto* const shape = tensor->mutable_shape();
    for (const Size& s : sizes) {
      auto* const d = shape->add_dim();
      if (s.name.empty())
        d->set_dim_value(s.number);
      else
        d->set_dim_param(s.name);
    }
  }
};

inline ModelProto model_of(const GraphBuilder& graph, std::int64_t opset = 17) {
  ModelProto model;
  model.set_ir_version(8);
  *model.mutable_graph() = graph.proto;
  model.add_opset_import()->set_version(opset);
  return model;
}
inline void write_model(const std::string& path, const ModelProto& model) {
  std::ofstream file(path, std::ios::binary);
  if (!model.SerializeToOstream(&file)) throw std::runtime_error("cannot write " + path);
}

}  // namespace fermata::test

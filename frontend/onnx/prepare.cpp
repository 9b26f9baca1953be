// See prepare.h.
#include "frontend/onnx/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "dispatch/registration.h"
#include "frontend/onnx/known.h"
#include "frontend/onnx/operators.h"
#include "ir/error.h"

namespace fermata::onnx {
namespace {

using ::onnx::AttributeProto;
using ::onnx::FunctionProto;
using ::onnx::GraphProto;
using ::onnx::NodeProto;

/// Calls of functions are written out, and functions may call each other twice: a small file could ask for any number.
constexpr std::size_t kMostNodes = 500'000;
constexpr int kMostNested = 200;

bool is_default_domain(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }

/// "com.example" and "Ema" as com_example::Ema, the name that a program registers the operator under.
std::string registered_name(const NodeProto& node) {
  std::string space = is_default_domain(node.domain()) ? "ai_onnx" : node.domain();
  for (char& c : space)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return space + "::" + node.op_type();
}

std::string title_of(const NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : std::string("?");
}

using Attributes = std::map<std::string, AttributeProto*>;

/// A graph whose names are looked up; those of the graphs around it are found after its own.
struct Scope {
  Scope* outer;
  std::unordered_map<std::string, Place> names{};
  std::unordered_map<Place, std::size_t> last_use{};  // of the places of this graph: by which of its nodes
  std::size_t node = 0;                               // that is being prepared
  const Attributes* arguments = nullptr;              // of the function that this is the body of
};

class Preparation {
 public:
  Preparation(::onnx::ModelProto& model, TensorReader& reader, detail::Program& program, Prepared& prepared)
      : model_(model), reader_(reader), program_(program), prepared_(prepared) {
    for (const auto& import : model.opset_import()) opsets_[space_of(import.domain())] = import.version();
    for (auto& f : *model.mutable_functions()) functions_[{space_of(f.domain()), f.name()}] = &f;
  }

  void run() {
    if (!model_.has_graph()) fail("no graph");
    Scope scope{nullptr};
    GraphProto& graph = *model_.mutable_graph();
    find_host_operands(graph);
    std::set<std::string> inputs;
    for (const auto& input : graph.input()) inputs.insert(input.name());
    // Before version 4 of the format all initializers are listed among the inputs.
    const bool inputs_have_defaults = model_.ir_version() >= 4;
    for (auto& tensor : *graph.mutable_initializer()) {
      const bool is_default = inputs_have_defaults && inputs.contains(tensor.name());
      if (!inputs_have_defaults) inputs.erase(tensor.name());
      add_initializer(tensor, is_default, scope);
    }
    if (graph.sparse_initializer_size() > 0) unsupported_["sparse initializer"].push_back(graph.name());
    for (const auto& input : graph.input()) {
      if (!inputs.contains(input.name())) continue;
      const auto found = scope.names.find(input.name());
      program_.has_default.push_back(found != scope.names.end());
      prepared_.body.inputs.push_back(found != scope.names.end() ? found->second : define(input.name(), scope));
      program_.inputs.push_back(info_of(input));
    }
    prepared_.body.nodes = nodes_of(*graph.mutable_node(), scope);
    for (const auto& output : graph.output()) {
      prepared_.body.outputs.push_back(find(output.name(), scope, "an output of the model"));
      program_.outputs.push_back(info_of(output));
    }
    if (!unsupported_.empty()) throw_unsupported();
    release_after_last_use(prepared_.body, scope);
    prepared_.initial.resize(static_cast<std::size_t>(places_));
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { throw_damaged(reader_.path(), what, reader_.where()); }
  static std::string space_of(const std::string& domain) { return is_default_domain(domain) ? std::string() : domain; }

  [[noreturn]] void throw_unsupported() const {
    std::vector<std::string> texts;
    for (const auto& [what, nodes] : unsupported_)
      texts.push_back(
          fmt::format("\n  {}  in {} node{}: {}{}", what, nodes.size(), nodes.size() == 1 ? "" : "s",
                      fmt::join(nodes.begin(), nodes.begin() + std::min<std::ptrdiff_t>(std::ssize(nodes), 5), ", "),
                      nodes.size() > 5 ? ", ..." : ""));
    throw UnsupportedError(
        2303, format_error(2303, "UnsupportedError",
                           fmt::format("onnx: {}: unsupported operators{}", reader_.path(), fmt::join(texts, "")), {},
                           reader_.where()));
  }

  /// Initializers that some operator reads as it is called are no parameters.
  void find_host_operands(const GraphProto& graph) {
    for (const NodeProto& node : graph.node()) {
      const OperatorRow* const row = is_default_domain(node.domain()) ? find_operator(node.op_type()) : nullptr;
      for (int k = 0; row != nullptr && k < node.input_size(); ++k)
        if (k < 32 && (row->host_operands >> k & 1) != 0) read_on_host_.insert(node.input(k));
      for (const AttributeProto& attribute : node.attribute())
        if (attribute.has_g()) find_host_operands(attribute.g());
    }
  }

  Place define(const std::string& name, Scope& scope) {
    if (name.empty()) fail("a value has no name");
    const auto [entry, is_new] = scope.names.emplace(name, places_);
    if (!is_new) fail(fmt::format("'{}' is defined twice", name.substr(0, 80)));
    prepared_.initial.emplace_back();
    return places_++;
  }

  Place find(const std::string& name, Scope& from, std::string_view what) {
    for (Scope* scope = &from; scope != nullptr; scope = scope->outer) {
      const auto found = scope->names.find(name);
      if (found == scope->names.end()) continue;
      scope->last_use[found->second] = scope->node;
      return found->second;
    }
    fail(fmt::format("{} is '{}', which is not defined before it", what, name.substr(0, 80)));
  }

  void add_initializer(::onnx::TensorProto& proto, bool is_default, Scope& scope) {
    const std::string name = proto.name();
    const Place place = define(name, scope);
    Tensor tensor = reader_.read(proto);
    const bool is_constant = tensor.rank() == 0 || read_on_host_.contains(name);
    Value& value = prepared_.initial[static_cast<std::size_t>(place)];
    value = Value(tensor, (is_constant || !is_floating(tensor.dtype())) && can_be_known(tensor));
    if (is_default || is_constant) return;
    if (is_floating(tensor.dtype())) {
      program_.parameters.emplace(name, tensor);
      prepared_.parameters.emplace_back(name, place);
    } else if (!value.known()) {
      program_.buffers.emplace(name, Buffer{tensor});
      prepared_.buffers.emplace_back(name, place);
    }
  }

  ValueInfo info_of(const ::onnx::ValueInfoProto& proto) const {
    ValueInfo info{proto.name(), {}, {}};
    if (!proto.has_type() || !proto.type().has_tensor_type()) return info;
    const auto& type = proto.type().tensor_type();
    info.dtype = dtype_of_code(type.elem_type());
    if (!type.has_shape()) return info;
    info.sizes.emplace();
    for (const auto& d : type.shape().dim()) {
      Dimension size;
      if (d.has_dim_value() && d.dim_value() >= 0) size.size = d.dim_value();
      if (d.has_dim_param()) size.name = d.dim_param();
      info.sizes->push_back(std::move(size));
    }
    return info;
  }

  // RepeatedPtrField of nodes, of a graph or a function.
  template <class Nodes> std::vector<Node> nodes_of(Nodes& protos, Scope& scope) {
    std::vector<Node> nodes;
    for (NodeProto& proto : protos) {
      if (++node_count_ > kMostNodes) fail("too many nodes after functions are inlined");
      scope.node = nodes.size();
      nodes.push_back(node_of(proto, scope));
      for (const std::string& output : proto.output())
        nodes.back().outputs.push_back(output.empty() ? kNoPlace : define(output, scope));
      for (const Place place : nodes.back().outputs)
        if (place != kNoPlace) scope.last_use[place] = scope.node;
    }
    scope.node = nodes.size();
    return nodes;
  }

  static void release_after_last_use(Body& body, const Scope& scope) {
    for (const auto& [place, node] : scope.last_use)
      if (node < body.nodes.size()) body.nodes[node].done.push_back(place);
  }

  Node node_of(NodeProto& proto, Scope& scope) {
    Node node;
    node.name = title_of(proto);
    node.scope.named(proto.name());
    node.op = proto.op_type();
    node.domain = space_of(proto.domain());
    const auto opset = opsets_.find(node.domain);
    node.opset = opset == opsets_.end() ? 1 : opset->second;
    for (const std::string& input : proto.input())
      node.inputs.push_back(input.empty() ? kNoPlace
                                          : find(input, scope, fmt::format("an input of node '{}'", node.name)));
    Attributes attributes;
    for (AttributeProto& attribute : *proto.mutable_attribute()) {
      if (attribute.ref_attr_name().empty()) {
        attributes[attribute.name()] = &attribute;
        continue;
      }
      // In a function: what its caller gives, or nothing.
      if (scope.arguments == nullptr) continue;
      const auto given = scope.arguments->find(attribute.ref_attr_name());
      if (given != scope.arguments->end()) attributes[attribute.name()] = given->second;
    }
    if (const auto function = functions_.find({node.domain, node.op}); function != functions_.end()) {
      node.function = body_of_function(*function->second, attributes, node.inputs.size());
      return node;
    }
    if (node.domain.empty()) node.row = find_operator(node.op);
    if (node.row == nullptr || node.row->run == nullptr) {
      const std::string name = registered_name(proto);
      if (fermata::find_operator(name) != nullptr) {
        node.custom = std::make_shared<const OperatorHandle>(OperatorHandle::find(name, reader_.where()));
        node.row = nullptr;
      } else {
        const std::string what = (node.domain.empty() ? "" : node.domain + "::") + node.op;
        const std::string why = node.row == nullptr ? std::string() : fmt::format(" ({})", node.row->note);
        unsupported_[what + why].push_back(node.name);
      }
    }
    for (const auto& [name, attribute] : attributes) node.attributes.push_back(attribute_of(name, *attribute, scope));
    return node;
  }

  Attribute attribute_of(const std::string& name, AttributeProto& proto, Scope& scope) {
    Attribute a{name, type_of(name, proto)};
    a.integer = proto.i();
    a.number = static_cast<double>(proto.f());
    a.text = proto.s();
    a.integers.assign(proto.ints().begin(), proto.ints().end());
    a.numbers.assign(proto.floats().begin(), proto.floats().end());
    a.texts.assign(proto.strings().begin(), proto.strings().end());
    if (proto.has_t()) {
      if (proto.t().data_type() == ::onnx::TensorProto::STRING) {
        a.holds_text = true;
      } else {
        ::onnx::TensorProto copy = proto.t();  // a function may be called again
        a.tensor = reader_.read(copy);
      }
    }
    if (proto.has_g()) a.body = body_of_graph(*proto.mutable_g(), scope);
    return a;
  }

  /// The type that is declared. Files of the first version of the format declare none: then of the field that is set.
  AttributeType type_of(const std::string& name, const AttributeProto& proto) const {
    const auto declared = static_cast<AttributeType>(proto.type());
    AttributeType held = AttributeType::undefined;
    if (proto.has_f()) held = AttributeType::number;
    if (proto.has_i()) held = AttributeType::integer;
    if (proto.has_s()) held = AttributeType::text;
    if (proto.has_t()) held = AttributeType::tensor;
    if (proto.has_g()) held = AttributeType::graph;
    if (proto.floats_size() > 0) held = AttributeType::numbers;
    if (proto.ints_size() > 0) held = AttributeType::integers;
    if (proto.strings_size() > 0) held = AttributeType::texts;
    if (declared == AttributeType::undefined || held == AttributeType::undefined) return std::max(declared, held);
    if (declared != held)
      fail(fmt::format("attribute '{}' is declared as {} and holds {}", name.substr(0, 80), onnx::name(declared),
                       onnx::name(held)));
    return declared;
  }

  class Nesting {
   public:
    explicit Nesting(Preparation& p) : depth_(p.depth_) {
      if (++depth_ > kMostNested) p.fail("functions or graphs are nested too deeply");
    }
    ~Nesting() { --depth_; }

   private:
    int& depth_;
  };

  std::shared_ptr<const Body> body_of_graph(GraphProto& graph, Scope& outer) {
    const Nesting nesting(*this);
    auto body = std::make_shared<Body>();
    Scope scope{&outer, {}, {}, 0, outer.arguments};
    for (const auto& tensor : graph.initializer()) {
      ::onnx::TensorProto copy = tensor;
      const Tensor value = reader_.read(copy);
      body->constants.emplace_back(define(tensor.name(), scope), Value(value, can_be_known(value)));
    }
    for (const auto& input : graph.input()) body->inputs.push_back(define(input.name(), scope));
    body->nodes = nodes_of(*graph.mutable_node(), scope);
    for (const auto& output : graph.output())
      body->outputs.push_back(find(output.name(), scope, "an output of a graph"));
    release_after_last_use(*body, scope);
    return body;
  }

  std::shared_ptr<const Body> body_of_function(FunctionProto& function, Attributes& given, std::size_t inputs) {
    const Nesting nesting(*this);
    if (inputs > static_cast<std::size_t>(function.input_size()))
      fail(fmt::format("function '{}' takes {} inputs, not {}", function.name(), function.input_size(), inputs));
    auto body = std::make_shared<Body>();
    Scope scope{nullptr};
    scope.arguments = &given;
    const auto outside = opsets_;
    for (const auto& import : function.opset_import()) opsets_[space_of(import.domain())] = import.version();
    for (const std::string& input : function.input()) body->inputs.push_back(define(input, scope));
    body->nodes = nodes_of(*function.mutable_node(), scope);
    for (const std::string& output : function.output())
      body->outputs.push_back(find(output, scope, "an output of a function"));
    opsets_ = outside;
    release_after_last_use(*body, scope);
    return body;
  }

  ::onnx::ModelProto& model_;
  TensorReader& reader_;
  detail::Program& program_;
  Prepared& prepared_;
  std::map<std::string, std::int64_t> opsets_;
  std::map<std::pair<std::string, std::string>, FunctionProto*> functions_;
  std::set<std::string> read_on_host_;
  std::map<std::string, std::vector<std::string>> unsupported_;
  Place places_ = 0;
  std::size_t node_count_ = 0;
  int depth_ = 0;
};

}  // namespace

Prepared prepare(::onnx::ModelProto& model, TensorReader& reader, detail::Program& program) {
  Prepared prepared;
  Preparation(model, reader, program, prepared).run();
  return prepared;
}

}  // namespace fermata::onnx

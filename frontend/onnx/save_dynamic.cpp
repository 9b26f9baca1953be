// See save_dynamic.h. The first model has the sizes that all others are compared with, each of the next ones another
// size of one name, and the last one other sizes of all names: what fits the others is checked by it.
#include "frontend/onnx/save_dynamic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/error.h"

namespace fermata::onnx {
namespace {

using Numbers = std::vector<std::int64_t>;  // one of each model

/// A size with a name.
struct Symbol {
  std::string name, input;
  std::int64_t axis;
  Numbers sizes;
};
/// constant + the sum of factors times sizes; or `constant` times the product of those with a factor.
struct Expression {
  std::int64_t constant = 0;
  Numbers factors;  // of each symbol
  bool is_product = false;
};

bool is_same(const Numbers& v) {
  return std::ranges::all_of(v, [&](std::int64_t x) { return x == v[0]; });
}

class DynamicModel {
 public:
  DynamicModel(std::span<::onnx::ModelProto> models, std::vector<Symbol> symbols, Location where)
      : models_(models), symbols_(std::move(symbols)), where_(where), graph_(*models[0].mutable_graph()) {}

  void make() {
    check_nodes();
    for (int i = 0, count = graph_.initializer_size(); i < count; ++i) replace(i);
    remove_replaced();
    for (int i = 0; i < graph_.input_size(); ++i) describe(*graph_.mutable_input(i), i, true);
    for (int i = 0; i < graph_.output_size(); ++i) describe(*graph_.mutable_output(i), i, false);
    // The new nodes need nothing but inputs, and come first.
    ::google::protobuf::RepeatedPtrField<::onnx::NodeProto> all;
    all.Swap(graph_.mutable_node());
    for (::onnx::NodeProto& n : made_) *graph_.add_node() = std::move(n);
    for (::onnx::NodeProto& n : all) *graph_.add_node() = std::move(n);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UnsupportedError(5746, format_error(5746, "UnsupportedError", fmt::format("onnx: {}", what), {}, where_));
  }

  void check_nodes() const {
    for (const ::onnx::ModelProto& other : models_.subspan(1)) {
      const ::onnx::GraphProto& g = other.graph();
      bool same = g.node_size() == graph_.node_size() && g.initializer_size() == graph_.initializer_size();
      for (int i = 0; same && i < g.node_size(); ++i) {
        same = g.node(i).SerializeAsString() == graph_.node(i).SerializeAsString();
        if (!same && g.node(i).op_type() == graph_.node(i).op_type())
          fail(fmt::format("an attribute of node '{}' ({}) depends on a dynamic size", graph_.node(i).name(),
                           graph_.node(i).op_type()));
      }
      if (!same) fail("the function makes different calls for different sizes of a dynamic axis");
    }
  }

  /// What gives these numbers for the sizes of each model.
  std::optional<Expression> fit(const Numbers& v) const {
    Expression e{.constant = v[0], .factors = Numbers(symbols_.size(), 0)};
    bool is_whole = true;
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      const std::int64_t by = v[s + 1] - v[0], step = symbols_[s].sizes[s + 1] - symbols_[s].sizes[0];
      is_whole = is_whole && by % step == 0;
      e.factors[s] = by / step;
      e.constant -= e.factors[s] * symbols_[s].sizes[0];
    }
    if (is_whole && agrees(e, v)) return e;
    e.is_product = true;
    std::int64_t product = 1;
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      e.factors[s] = v[s + 1] != v[0] ? 1 : 0;
      if (e.factors[s] != 0) product *= symbols_[s].sizes[0];
    }
    e.constant = product == 0 ? 0 : v[0] / product;
    if (agrees(e, v)) return e;
    return std::nullopt;
  }
  bool agrees(const Expression& e, const Numbers& v) const {
    for (std::size_t m = 0; m < v.size(); ++m) {
      std::int64_t value = e.constant;
      for (std::size_t s = 0; s < symbols_.size(); ++s) {
        if (e.is_product && e.factors[s] != 0) value *= symbols_[s].sizes[m];
        if (!e.is_product) value += e.factors[s] * symbols_[s].sizes[m];
      }
      if (value != v[m]) return false;
    }
    return true;
  }

  // Nodes of the expressions: vectors of one i64.
  std::string emit(const std::string& op, const std::vector<std::string>& inputs) {
    ::onnx::NodeProto& n = made_.emplace_back();
    n.set_op_type(op), n.set_name(fmt::format("{}_of_sizes_{}", op, made_.size()));
    for (const std::string& i : inputs) n.add_input(i);
    n.add_output(fmt::format("s{}", made_.size()));
    return n.output(0);
  }
  void attribute(const std::string& name, std::int64_t value) {
    ::onnx::AttributeProto* const a = made_.back().add_attribute();
    a->set_name(name), a->set_type(::onnx::AttributeProto::INT), a->set_i(value);
  }
  std::string constant(std::int64_t value) {
    ::onnx::TensorProto* const t = graph_.add_initializer();
    t->set_name(fmt::format("k{}", graph_.initializer_size())), t->set_data_type(::onnx::TensorProto::INT64);
    t->add_dims(1);
    t->set_raw_data(std::string(reinterpret_cast<const char*>(&value), sizeof value));
    return t->name();
  }
  std::string size_of(std::size_t s) {
    std::string& name = size_names_[s];
    if (!name.empty()) return name;
    name = emit("Shape", {symbols_[s].input});
    attribute("start", symbols_[s].axis), attribute("end", symbols_[s].axis + 1);
    return name;
  }
  std::string write(const Expression& e) {
    std::string result;
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      if (e.factors[s] == 0) continue;
      std::string term = size_of(s);
      if (!e.is_product && e.factors[s] != 1) term = emit("Mul", {term, constant(e.factors[s])});
      result = result.empty() ? term : emit(e.is_product ? "Mul" : "Add", {result, term});
    }
    if (result.empty()) return constant(e.constant);
    if (e.is_product && e.constant != 1) return emit("Mul", {result, constant(e.constant)});
    return !e.is_product && e.constant != 0 ? emit("Add", {result, constant(e.constant)}) : result;
  }

  const ::onnx::TensorProto& initializer(std::size_t model, int i) const {
    return models_[model].graph().initializer(i);
  }
  template <class T> T element(std::size_t model, int i, std::size_t at) const {
    T value{};
    std::memcpy(&value, initializer(model, i).raw_data().data() + at * sizeof(T), sizeof(T));
    return value;
  }

  /// An initializer that is not the same in all models becomes the result of nodes.
  void replace(int i) {
    bool same = true, same_form = true;
    for (std::size_t m = 1; m < models_.size(); ++m) {
      const ::onnx::TensorProto &a = initializer(0, i), &b = initializer(m, i);
      same = same && a.raw_data() == b.raw_data();
      same_form = same_form && a.data_type() == b.data_type() && a.raw_data().size() == b.raw_data().size() &&
                  a.dims_size() == b.dims_size();
    }
    if (same && same_form) return;
    const ::onnx::TensorProto& t = initializer(0, i);
    const std::string name = t.name();
    std::string made;
    if (same_form && t.data_type() == ::onnx::TensorProto::INT64 && t.dims_size() <= 1)
      made = write_integers(i, t.raw_data().size() / sizeof(std::int64_t));
    else if (same_form && t.data_type() == ::onnx::TensorProto::FLOAT && t.dims_size() == 0)
      made = write_number<float>(i, ::onnx::TensorProto::FLOAT);
    else if (same_form && t.data_type() == ::onnx::TensorProto::DOUBLE && t.dims_size() == 0)
      made = write_number<double>(i, ::onnx::TensorProto::DOUBLE);
    if (made.empty())
      fail(fmt::format("a constant of node {} depends on a dynamic size in a way that cannot be expressed",
                       reader_of(name)));
    // The last node gives the name that the others read.
    if (made_.empty() || made_.back().output(0) != made) made = emit("Identity", {made});
    made_.back().set_output(0, name);
    replaced_.insert(name);
  }
  std::string write_integers(int i, std::size_t count) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < count; ++at) {
      Numbers v;
      for (std::size_t m = 0; m < models_.size(); ++m) v.push_back(element<std::int64_t>(m, i, at));
      const std::optional<Expression> e = fit(v);
      if (!e) return {};
      parts.push_back(write(*e));
    }
    if (initializer(0, i).dims_size() == 0) return emit("Squeeze", {parts[0]});
    if (parts.size() == 1) return parts[0];
    const std::string all = emit("Concat", parts);
    attribute("axis", 0);
    return all;
  }
  /// A count, by which a mean over an axis divides, or c / n.
  template <class T> std::string write_number(int i, int code) {
    constexpr double kMost = 1 << 24;  // f32 has all integers up to here
    Numbers v;
    for (std::size_t m = 0; m < models_.size(); ++m) {
      const auto value = static_cast<double>(element<T>(m, i, 0));
      if (value != std::round(value) || std::abs(value) > kMost) return write_quotient<T>(i, code);
      v.push_back(static_cast<std::int64_t>(value));
    }
    const std::optional<Expression> e = fit(v);
    if (!e) return write_quotient<T>(i, code);
    const std::string number = emit("Cast", {write(*e)});
    attribute("to", code);
    return emit("Squeeze", {number});
  }
  template <class T> std::string write_quotient(int i, int code) {
    for (std::size_t s = 0; s < symbols_.size(); ++s) {
      const double c = static_cast<double>(element<T>(0, i, 0)) * static_cast<double>(symbols_[s].sizes[0]);
      bool fits = true;
      for (std::size_t m = 0; m < models_.size(); ++m) {
        const auto wanted = static_cast<double>(element<T>(m, i, 0));
        fits = fits && std::abs(c / static_cast<double>(symbols_[s].sizes[m]) - wanted) <= 1e-6 * std::abs(wanted);
      }
      if (!fits) continue;
      const std::string number = emit("Cast", {size_of(s)});
      attribute("to", code);
      ::onnx::TensorProto* const t = graph_.add_initializer();
      t->set_name(fmt::format("k{}", graph_.initializer_size())), t->set_data_type(code), t->add_dims(1);
      const auto value = static_cast<T>(std::abs(c - std::round(c)) < 1e-5 * std::abs(c) ? std::round(c) : c);
      t->set_raw_data(std::string(reinterpret_cast<const char*>(&value), sizeof value));
      return emit("Squeeze", {emit("Div", {t->name(), number})});
    }
    return {};
  }
  std::string reader_of(const std::string& name) const {
    for (const ::onnx::NodeProto& n : graph_.node())
      if (std::ranges::find(n.input(), name) != n.input().end()) return fmt::format("'{}' ({})", n.name(), n.op_type());
    return "?";
  }
  void remove_replaced() {
    ::google::protobuf::RepeatedPtrField<::onnx::TensorProto> all;
    all.Swap(graph_.mutable_initializer());
    for (::onnx::TensorProto& t : all)
      if (!replaced_.contains(t.name())) *graph_.add_initializer() = std::move(t);
  }

  /// Sizes that differ have the name of their symbol, or none.
  void describe(::onnx::ValueInfoProto& value, int i, bool is_input) const {
    auto& shape = *value.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int d = 0; d < shape.dim_size(); ++d) {
      Numbers v;
      for (const ::onnx::ModelProto& m : models_) {
        const auto& values = is_input ? m.graph().input() : m.graph().output();
        v.push_back(values[i].type().tensor_type().shape().dim(d).dim_value());
      }
      if (is_same(v)) continue;
      auto& dim = *shape.mutable_dim(d);
      dim.clear_dim_value();
      for (const Symbol& s : symbols_)
        if (s.sizes == v) dim.set_dim_param(s.name);
    }
  }

  std::span<::onnx::ModelProto> models_;
  const std::vector<Symbol> symbols_;
  const Location where_;
  ::onnx::GraphProto& graph_;
  std::vector<::onnx::NodeProto> made_;
  std::map<std::size_t, std::string> size_names_;
  std::set<std::string> replaced_;
};

}  // namespace

void make_sizes_dynamic(std::span<::onnx::ModelProto> models, std::span<const Trace> traces, const SaveOptions& options,
                        Location where) {
  std::vector<Symbol> symbols;
  for (const DynamicAxis& d : options.dynamic) {
    if (std::ranges::find(symbols, d.name, &Symbol::name) != symbols.end()) continue;
    const auto& inputs = models[0].graph().input();
    const auto input = static_cast<std::size_t>(
        std::ranges::find(inputs, d.input, [](const auto& value) { return value.name(); }) - inputs.begin());
    Symbol symbol{d.name, d.input, d.axis, {}};
    for (const Trace& t : traces) symbol.sizes.push_back(t.arguments[input].size(d.axis));
    symbols.push_back(std::move(symbol));
  }
  DynamicModel(models, std::move(symbols), where).make();
}

}  // namespace fermata::onnx

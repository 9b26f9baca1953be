// See table_program.h.
#include "tests/fuzz/table_program.h"

#include <fermata/fermata.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "frontend/engine/graph_runner.h"
#include "ir/accuracy.h"
#include "ir/ops/views.h"
#include "tests/frontend/op_calls.h"
#include "tests/fuzz/layouts.h"

namespace fermata::testing {
namespace {

struct TableCall {
  Op op;
  OpCall call;
};

/// Every call that the table has an example of.
const std::vector<TableCall>& table_calls() {
  static const std::vector<TableCall> calls = [] {
    std::vector<TableCall> found;
    for (std::size_t i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<Op>(i);
      if (const auto call = test::good_call(op)) found.push_back({op, *call});
      if (traits(op).other_examples != nullptr)
        for (const OpCall& call : traits(op).other_examples()) found.push_back({op, call});
    }
    return found;
  }();
  return calls;
}

/// Adds nodes to a program, from the first on.
class Builder {
 public:
  Builder(TableProgram& program, std::mt19937_64& random) : program_(program), random_(random) {}

  void add_call() {
    TableCall chosen = table_calls()[below(table_calls().size())];
    if (is_pointwise(chosen.op) && below(2) == 0) vary(chosen);
    const auto named = traits(chosen.op).operands;
    std::vector<GraphOperand> operands;
    for (std::size_t k = 0; k < chosen.call.shapes.size(); ++k) {
      const OperandElements elements =
          named.empty() ? OperandElements::any : named[std::min(k, named.size() - 1)].elements;
      const bool may_be_any =
          elements == OperandElements::any && !traits(chosen.op).may_fail_on_values && !must_be_sorted(chosen.op, k);
      std::optional<ValueId> value;
      if (may_be_any && below(8) != 0) value = value_of(chosen.call.dtypes[k], chosen.call.shapes[k]);
      if (!value) value = add_input(laid_out(fresh_operand(chosen, elements, k), may_be_any));
      operands.push_back({*value, 0});
    }
    add(chosen.op, std::move(operands), chosen.call);
  }

 private:
  /// Where numbers that are not sorted are searched, there is no right answer.
  static bool must_be_sorted(Op op, std::size_t k) { return op == Op::searchsorted && k == 0; }
  static Tensor fresh_operand(const TableCall& chosen, OperandElements elements, std::size_t k) {
    const Tensor made = test::operand_of(chosen.call, elements, k);
    return must_be_sorted(chosen.op, k) ? sort(made, -1).sync() : made;
  }
  /// Half of the operands lie in memory as views do, which may share elements where any will do.
  Tensor laid_out(const Tensor& x, bool may_be_any) {
    if (is_quantized(x.dtype()) || is_complex(x.dtype()) || below(2) == 0) return x;
    const Layout& layout = kLayouts[below(std::size(kLayouts))];
    return layout.shares && !may_be_any ? x : layout.of(x).sync();
  }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::size_t count() const { return program_.graph.nodes.size(); }
  const GraphNode& node(ValueId v) const { return program_.graph.nodes[v]; }

  /// Other dtypes and shapes, which broadcast.
  void vary(TableCall& chosen) {
    constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32,
                                 DType::i64, DType::u8,  DType::i16, DType::u64,  DType::boolean};
    OpCall call = chosen.call;
    for (std::size_t k = 0; k < call.shapes.size(); ++k) {
      call.dtypes[k] = kDTypes[below(std::size(kDTypes))];
      if (below(3) == 0) call.shapes[k] = below(2) == 0 ? Shape{4} : Shape{3, 1};
      if (below(6) == 0) call.shapes[k] = Shape{2, 3, 4};
    }
    if (test::is_valid(chosen.op, call)) chosen.call = std::move(call);
  }

  ValueId add_input(const Tensor& value) {
    GraphNode input;
    input.dtype = value.dtype(), input.shape = value.shape();
    program_.graph.nodes.push_back(std::move(input));
    program_.inputs.push_back(value);
    return static_cast<ValueId>(count() - 1);
  }
  std::optional<ValueId> add(Op op, std::vector<GraphOperand> operands, const OpCall& call) {
    GraphNode made;
    made.op = op, made.operands = std::move(operands);
    made.attributes = call.attributes, made.scalars = call.scalars;
    std::vector<TensorType> types;
    for (const GraphOperand& o : made.operands) types.push_back({node(o.value).dtype, node(o.value).shape});
    try {
      const TensorType type = infer(op, types, made.attributes, {call.dtype, call.shape}, {});
      made.dtype = type.dtype, made.shape = type.shape;
    } catch (const Error&) { return std::nullopt; }
    program_.graph.nodes.push_back(std::move(made));
    return static_cast<ValueId>(count() - 1);
  }

  static OpCall to(DType dtype, const Shape& shape, std::vector<std::int64_t> attributes) {
    OpCall call;
    call.dtype = dtype, call.shape = shape, call.attributes = std::move(attributes);
    return call;
  }
  /// A value that is there, made to fit; nothing if none can be.
  std::optional<ValueId> value_of(DType dtype, const Shape& shape) {
    const auto is_plain = [](DType t) { return !is_complex(t) && !is_quantized(t); };
    if (count() == 0) return std::nullopt;
    auto v =
        static_cast<ValueId>(below(2) == 0 ? count() - 1 - below(std::min<std::uint64_t>(count(), 4)) : below(count()));
    if (node(v).dtype == dtype && node(v).shape == shape) return v;
    if (!is_plain(dtype) || !is_plain(node(v).dtype) || element_count(node(v).shape) == 0) return std::nullopt;
    const auto then = [&](Op op, std::vector<ValueId> operands, const OpCall& call) {
      std::vector<GraphOperand> list;
      for (const ValueId o : operands) list.push_back({o, 0});
      const auto made = add(op, std::move(list), call);
      if (made) v = *made;
      return made.has_value();
    };
    if (node(v).dtype != dtype && !then(Op::cast, {v}, to(dtype, {}, {}))) return std::nullopt;
    const std::int64_t has = element_count(node(v).shape), wants = element_count(shape);
    if (has != wants) {
      if (!then(Op::reshape, {v}, to(DType::f32, {has}, {}))) return std::nullopt;
      const ValueId at = add_input(remainder(arange(wants) * 3, std::max<std::int64_t>(has, 1)).sync());
      if (!then(Op::take, {v, at}, to(DType::f32, {}, {0}))) return std::nullopt;
    }
    if (below(3) == 0 && shape.rank() >= 2 && wants > 0) {  // windows that overlap, in the place of the last two axes
      const std::int64_t count = shape[shape.rank() - 2], size = shape.back(),
                         step = 1 + static_cast<std::int64_t>(below(2));
      const std::int64_t length = (count - 1) * step + size;
      const Shape zero{0}, one{1};
      if (!then(Op::reshape, {v}, to(DType::f32, {wants}, {}))) return std::nullopt;
      if (length <= wants &&
          then(Op::slice, {v},
               to(DType::f32, {length}, encode_list(ops::Slice{.start = {zero}, .step = {one}, .counts = {}}))) &&
          then(Op::unfold, {v},
               to(DType::f32, {},
                  encode_list(ops::Unfold{.axis = {0}, .size = {size}, .step = {step}, .dilation = {1}}))))
        if (!then(Op::broadcast_to, {v}, to(DType::f32, shape, {}))) return std::nullopt;
    }
    if (node(v).shape != shape && !then(Op::reshape, {v}, to(DType::f32, shape, {}))) return std::nullopt;
    if (shape.rank() > 0 && below(6) == 0) {  // in the opposite order
      Shape start, step;
      for (const std::int64_t size : shape) start.push_back(std::max<std::int64_t>(size - 1, 0)), step.push_back(-1);
      then(Op::slice, {v},
           to(DType::f32, shape, encode_list(ops::Slice{.start = {start}, .step = {step}, .counts = {}})));
    }
    if (shape.rank() > 0 && below(8) == 0 && wants > 0) {  // one element of an axis, stretched
      Shape one = shape, start = shape, step = shape;
      one[below(shape.rank())] = 1;
      for (unsigned i = 0; i < shape.rank(); ++i) start[i] = 0, step[i] = 1;
      if (then(Op::slice, {v},
               to(DType::f32, one, encode_list(ops::Slice{.start = {start}, .step = {step}, .counts = {}}))))
        then(Op::broadcast_to, {v}, to(DType::f32, shape, {}));
    }
    return v;
  }

  TableProgram& program_;
  std::mt19937_64& random_;
};

/// Only what the outputs need, renumbered. An input that `replace` names takes the place of a call.
TableProgram pruned(const TableProgram& program, std::optional<ValueId> replace = {}, const Tensor& value = {}) {
  const std::size_t count = program.graph.nodes.size();
  std::vector<bool> needed(count, false);
  for (const ValueId v : program.graph.outputs) needed[v] = true;
  for (std::size_t i = count; i-- > 0;)
    if (needed[i] && i != replace)
      for (const GraphOperand& o : program.graph.nodes[i].operands)
        if (!o.is_scalar()) needed[o.value] = true;
  TableProgram small;
  std::vector<ValueId> renamed(count, 0);
  std::size_t next_input = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const GraphNode& n = program.graph.nodes[i];
    const bool is_input = n.op == Op::input;
    const Tensor& given = is_input ? program.inputs[next_input++] : value;
    if (!needed[i]) continue;
    renamed[i] = static_cast<ValueId>(small.graph.nodes.size());
    GraphNode node = n;
    if (i == replace) {
      node = GraphNode();
      node.dtype = n.dtype, node.shape = n.shape;
    }
    for (GraphOperand& o : node.operands)
      if (!o.is_scalar()) o.value = renamed[o.value];
    if (node.op == Op::input) small.inputs.push_back(given);
    small.graph.nodes.push_back(std::move(node));
  }
  for (const ValueId v : program.graph.outputs) small.graph.outputs.push_back(renamed[v]);
  return small;
}

}  // namespace

std::vector<Tensor> TableProgram::run(std::span<const Tensor> given) const { return run_graph(graph, given); }

TableProgram random_table_program(std::mt19937_64& random, std::size_t calls) {
  TableProgram program;
  Builder builder(program, random);
  for (std::size_t i = 0; i < calls; ++i) builder.add_call();
  std::vector<bool> read(program.graph.nodes.size(), false);
  for (const GraphNode& n : program.graph.nodes)
    for (const GraphOperand& o : n.operands)
      if (!o.is_scalar()) read[o.value] = true;
  for (std::size_t i = 0; i < program.graph.nodes.size(); ++i)
    if (program.graph.nodes[i].op != Op::input && (!read[i] || random() % 4 == 0))
      program.graph.outputs.push_back(static_cast<ValueId>(i));
  return program;
}

std::vector<Order> orders_of(const Graph& graph) {
  std::vector<Order> orders;
  for (const GraphNode& n : graph.nodes) {
    const std::string_view error = accuracy(n.op).text;
    const bool adds_up = !is_pointwise(n.op) && family(n.op) != Family::random && n.op != Op::cast && !error.empty() &&
                         !error.starts_with("exact");
    Order order = Order::exact;
    for (const GraphOperand& o : n.operands)
      if (!o.is_scalar() && orders[o.value] != Order::exact) order = Order::unknown;
    if (order == Order::exact && adds_up && (is_floating(n.dtype) || is_complex(n.dtype))) order = Order::sum;
    orders.push_back(order);
  }
  return orders;
}

TableProgram reduced(TableProgram program, const std::function<bool(const TableProgram&)>& fails) {
  const auto keep = [&](TableProgram smaller) {
    if (!fails(smaller)) return false;
    program = std::move(smaller);
    return true;
  };
  for (const ValueId v : std::vector<ValueId>(program.graph.outputs)) {
    TableProgram one = program;
    one.graph.outputs = {v};
    if (keep(pruned(one))) break;
  }
  for (std::size_t i = program.graph.outputs.size(); i-- > 0 && program.graph.outputs.size() > 1;) {
    TableProgram fewer = program;
    fewer.graph.outputs.erase(fewer.graph.outputs.begin() + static_cast<std::ptrdiff_t>(i));
    keep(pruned(fewer));
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = program.graph.nodes.size(); i-- > 0 && !changed;) {
      const auto v = static_cast<ValueId>(i);
      if (program.graph.nodes[v].op == Op::input || std::ranges::count(program.graph.outputs, v) != 0) continue;
      const ModeGuard eager(Mode::eager);
      TableProgram part = program;
      part.graph.outputs = {v};
      part = pruned(part);
      try {
        changed = keep(pruned(program, v, copy(part.run(part.inputs).at(0)).sync()));
      } catch (const Error&) {}
    }
  }
  return program;
}

std::string to_cpp(const TableProgram& program) {
  std::string text =
      "const Graph graph = parse_graph(R\"(\n" + to_string(program.graph) + ")\");\nconst Tensor inputs[] = {\n";
  for (const Tensor& x : program.inputs) {
    std::string numbers;
    if (!is_complex(x.dtype()) && !is_quantized(x.dtype()))
      for (const double v : astype(x, DType::f64).to_vector<double>())
        numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ",
                               std::isfinite(v) ? fmt::format("{}", v)
                               : v > 0          ? "INFINITY"
                               : v < 0          ? "-INFINITY"
                                                : "NAN");
    else
      numbers = "/* of a dtype without a literal */";
    std::string sizes;
    for (const std::int64_t size : x.shape()) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
    if (const NodeExtra* extra = x.node()->extra; extra != nullptr && extra->strided)
      text +=
          fmt::format("    // laid out with strides {}\n", to_string(std::span<const std::int64_t>(extra->strides)));
    text += fmt::format("    astype(tensor(std::vector<double>{{{}}}, {{{}}}), *dtype_from_name(\"{}\")),\n", numbers,
                        sizes, name(x.dtype()));
  }
  return text + "};\nrun_graph(graph, inputs);\n";
}

}  // namespace fermata::testing

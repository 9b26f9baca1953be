// See graph_runner.h.
#include "frontend/engine/graph_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "dispatch/operator.h"
#include "dispatch/value.h"
#include "fermata/autograd.h"
#include "fermata/creation.h"
#include "fermata/modes.h"
#include "frontend/engine/control_step.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/ops/control.h"

namespace fermata {
namespace {

/// Decodes the bits of a compute dtype.
Scalar scalar_of(std::uint64_t bits, DType compute) {
  Scalar number(false);
  visit_compute(compute, [&]<class T>() {
    T value;
    std::memcpy(&value, &bits, sizeof value);  // the low bytes (constant_bits)
    number = Scalar(value);
  });
  return number;
}

class GraphRunner {
 public:
  GraphRunner(const Graph& graph, Location where) : graph_(graph), where_(where), values_(graph.nodes.size()) {}

  std::vector<Tensor> play(std::span<const Tensor> inputs) {
    std::vector<std::uint32_t> readers = count_uses(graph_);
    std::size_t next_input = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      values_[i] = n.op == Op::input ? inputs[next_input++] : call(n);
      for (const GraphOperand& o : n.operands)  // unneeded handles would make their values outputs
        if (!o.is_scalar() && --readers[o.value] == 0) values_[o.value] = Tensor();
    }
    std::vector<Tensor> outputs;
    for (const ValueId v : graph_.outputs) outputs.push_back(values_[v]);
    return outputs;
  }

 private:
  Tensor call(const GraphNode& n) const {
    const Location where = n.where.line() != 0 ? n.where : where_;
    if (is_pointwise(n.op)) return call_pointwise(n, where);
    std::vector<Tensor> tensors;
    for (const GraphOperand& o : n.operands) tensors.push_back(values_[o.value]);
    if (n.subgraphs != nullptr) return call_functions(n, tensors, where);
    if (family(n.op) == Family::external) {
      Stack stack = decode_arguments(n.attributes, tensors);
      call_boxed(operator_entry(n.op), stack, where);
      return stack.at(0).as<Tensor>();
    }
    // A call with an effect also reads the previous one, which the order of these calls already implies.
    if (effect_of(n.op) == Effect::effect) tensors.resize(traits(n.op).least_operands);
    return general_call(n.op, tensors, {.wanted = {n.dtype, n.shape}, .integers = n.attributes, .scalars = n.scalars},
                        where);
  }

  /// Captures the functions of a node, whatever the mode: their arguments need not exist.
  static Tensor call_functions(const GraphNode& n, std::span<const Tensor> tensors, Location where) {
    BackendKey backend = BackendKey::cpu;
    for (const Tensor& t : tensors) {
      if (backend == BackendKey::cpu) backend = t.node()->backend;
      if (grad_enabled() && t.keys().has(Functionality::autograd))
        throw UnsupportedError(
            2762, format_error(2762, "UnsupportedError",
                               fmt::format("{}: gradients through a graph are not supported", name(n.op)),
                               {{"x", to_string(t.dtype(), t.shape()), ""}}, where, "detach() the inputs"));
    }
    const auto capture = [&](const OwnFunction& f) {
      const ModeGuard recorded(Mode::compiled);
      const KeyGuard not_traced({}, Functionality::tracer);
      const InsideLevel outside(nullptr);
      const auto body = [graph = f.value->graph(), where](std::span<const Tensor> arguments) {
        return run_graph(graph, arguments, where);
      };
      return std::make_unique<CapturedFunction>(body, f.value->arguments(), backend, name(n.op), where);
    };
    const auto next = [&](std::size_t count) {
      const auto found = tensors.first(count);
      tensors = tensors.subspan(count);
      return found;
    };
    const auto seed = [&](bool is_given) { return is_given ? next(1)[0] : Tensor(); };
    // Remaining operands are only waited for: they have been computed.
    if (n.op == Op::cond) {
      const auto op = attributes_of<ops::Cond>(n);
      const Tensor predicate = next(1)[0], of_streams = seed(op.seeded.value);
      return ControlCall::cond(predicate, capture(op.when_true), capture(op.when_false),
                               next(op.when_true.value->arguments().size()), of_streams)
          .run(where);
    }
    if (n.op == Op::while_loop) {
      const auto op = attributes_of<ops::WhileLoop>(n);
      const Tensor of_streams = seed(op.seeded.value);
      const auto init = next(op.body.value->results().size()),
                 rest = next(op.body.value->arguments().size() - init.size());
      return ControlCall::while_loop(capture(op.condition), capture(op.body), init, rest, of_streams).run(where);
    }
    const auto op = attributes_of<ops::ScanLoop>(n);
    const Tensor of_streams = seed(op.seeded.value);
    const auto init = next(static_cast<std::size_t>(op.carries.value)),
               sequences = next(static_cast<std::size_t>(op.sequences.value)),
               rest = next(op.body.value->arguments().size() - init.size() - sequences.size());
    return ControlCall::scan(capture(op.body), init, sequences, rest, op.length.value, op.reverse.value, of_streams)
        .run(where);
  }

  Tensor call_pointwise(const GraphNode& n, Location where) const {
    const DType dtype = operand_dtype(graph_, n);
    const bool has_condition = info(n.op).rule == DTypeRule::choose;
    // A number takes the dtype of the tensor operands; without one it needs its own.
    const bool lone = std::all_of(n.operands.begin() + has_condition, n.operands.end(),
                                  [](const GraphOperand& o) { return o.is_scalar(); });
    std::vector<Tensor> made;
    made.reserve(n.operands.size());
    std::vector<Operand> operands;
    for (std::size_t k = 0; k < n.operands.size(); ++k) {
      const GraphOperand& o = n.operands[k];
      if (!o.is_scalar()) {
        operands.emplace_back(values_[o.value], where);
        continue;
      }
      const bool condition = has_condition && k == 0;
      const Scalar number = scalar_of(n.scalars[o.scalar], scalar_dtype(condition ? DType::boolean : dtype));
      if (lone && !condition)
        operands.emplace_back(made.emplace_back(full({}, number, dtype, where)), where);
      else
        operands.emplace_back(number, where);
    }
    const OperatorEntry& entry = operator_entry(n.op);
    switch (operands.size()) {
      case 1: return Dispatcher<UnaryCall>::call(entry, where, operands[0]);
      case 2: return Dispatcher<BinaryCall>::call(entry, where, operands[0], operands[1]);
      default: return Dispatcher<TernaryCall>::call(entry, where, operands[0], operands[1], operands[2]);
    }
  }

  const Graph& graph_;
  Location where_;
  std::vector<Tensor> values_;
};

}  // namespace

std::vector<Tensor> run_graph(const Graph& graph, std::span<const Tensor> inputs, Location where) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (n.op != Op::input || count++ >= inputs.size()) continue;
    const Tensor& x = inputs[count - 1];
    if (x.defined() && x.dtype() == n.dtype && x.shape() == n.shape) continue;
    throw ValueError(1330, format_error(1330, "ValueError", fmt::format("input {} does not match the graph", count - 1),
                                        {{"graph", to_string(n.dtype, n.shape), fmt::format("%{}", i)},
                                         {"given", x.defined() ? to_string(x.dtype(), x.shape()) : "undefined", ""}},
                                        where));
  }
  if (count != inputs.size())
    throw ValueError(
        1331, format_error(1331, "ValueError", fmt::format("a graph with {} inputs was given {}", count, inputs.size()),
                           {}, where));
  return GraphRunner(graph, where).play(inputs);
}

}  // namespace fermata

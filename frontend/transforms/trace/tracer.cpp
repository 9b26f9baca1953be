// See tracer.h and fermata/trace.h.
#include "frontend/transforms/trace/tracer.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/engine/capture_scope.h"
#include "frontend/engine/graph_runner.h"
#include "frontend/ops/calls.h"
#include "ir/custom_op.h"
#include "ir/error.h"

namespace fermata {

using detail::TraceRun;

constinit thread_local Tracer* tracer = nullptr;

namespace {

GraphNode leaf_node(Op op, const Tensor& x, Location where) {
  return {.op = op,
          .dtype = x.dtype(),
          .shape = x.shape(),
          .operands = {},
          .attributes = {},
          .scalars = {},
          .where = where};
}

/// Tensors that are made of others, or of nothing, are no values of a program.
void require_elements(const Tensor& x, Location where) {
  const TensorPayload* payload = x.impl()->payload;
  const Storage* storage = x.node()->storage.load(std::memory_order_acquire);
  if (payload == nullptr && (storage == nullptr || !storage->has_no_buffer())) return;
  throw UnsupportedError(2712, format_error(2712, "UnsupportedError",
                                            fmt::format("trace: {} cannot be part of a program",
                                                        payload != nullptr ? payload->kind() : "a meta tensor"),
                                            describe(x), where));
}

/// Runs without tracing or recording: for reading captured values.
class Untraced : KeyGuard {
 public:
  Untraced() : KeyGuard({}, Functionality::tracer), saved_(std::exchange(tracer, nullptr)) {}
  ~Untraced() { tracer = saved_; }

 private:
  Tracer* saved_;
};

std::uint64_t bits_of_element(const Tensor& x, Location where) {
  const Untraced reading;
  if (x.dtype() == DType::u64) return x.item<std::uint64_t>(where);
  return scalar_bits(is_floating(x.dtype()) ? Scalar(x.item<double>(where)) : Scalar(x.item<std::int64_t>(where)),
                     x.dtype());
}

}  // namespace

Tracer::Tracer(std::span<const Tensor> arguments, Location where) : arguments_(arguments.begin(), arguments.end()) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& x = arguments[i];
    require_defined("trace", x, where);
    require_elements(x, where);
    before_.push_back(x.detach());
    if (const auto known = ids_.find(x.node()); known != ids_.end())
      throw ValueError(1340,
                       format_error(1340, "ValueError",
                                    fmt::format("trace: arguments {} and {} are the same value", known->second, i),
                                    describe(x), where, "copy() one of them"));
    add(leaf_node(Op::input, x, where), x, true);
  }
}

ValueId Tracer::add(GraphNode node, const Tensor& value, bool depends) {
  const auto id = static_cast<ValueId>(graph_.nodes.size());
  graph_.nodes.push_back(std::move(node));
  depends_.push_back(depends);
  held_.emplace_back(value);
  ids_.emplace(value.node(), id);
  return id;
}

ValueId Tracer::constant(const Tensor& tensor, Location where) {
  require_elements(tensor, where);
  const Tensor value = tensor.detach();
  const bool number = value.rank() == 0 && !is_complex(value.dtype());  // graphs have no complex numbers in them
  GraphNode node = leaf_node(number ? Op::full : Op::input, value, where);
  if (number) node.scalars.push_back(bits_of_element(value, where));
  const ValueId id = add(std::move(node), value, false);
  constants_.push_back({tensor, value, id});
  return id;
}

ValueId Tracer::id_of(const Tensor& tensor, Location where) {
  const auto known = ids_.find(tensor.node());
  return known != ids_.end() ? known->second : constant(tensor, where);
}

void Tracer::record(GraphNode node, const Tensor& result) {
  if (ids_.contains(result.node())) return;
  node.dtype = result.dtype(), node.shape = result.shape();
  const bool depends =
      std::ranges::any_of(node.operands, [&](const GraphOperand& o) { return !o.is_scalar() && depends_[o.value]; });
  add(std::move(node), result, depends);
}

void Tracer::note_read(const Tensor& tensor, const char* reason, Location where) {
  if (std::string_view(reason) == "data")
    throw UnsupportedError(
        2710, format_error(2710, "UnsupportedError", "data: a trace does not see writes through a pointer",
                           describe(tensor), where, "read elements with to_vector(), write them with assign()"));
  const auto known = ids_.find(tensor.node());
  if (std::string_view(reason) == "sync" || known == ids_.end() || !depends_[known->second]) return;
  frozen_.push_back(fmt::format("{} at {}", reason, short_location(where)));
}

void Tracer::note_results(std::string_view op, std::span<const Tensor> operands, std::span<const Tensor> results,
                          Location where) {
  const auto depends = [&](const Tensor& t) {
    const auto known = ids_.find(t.node());
    return known != ids_.end() && depends_[known->second];
  };
  const auto is_unknown = [&](const Tensor& t) { return !ids_.contains(t.node()); };
  if (std::ranges::any_of(operands, depends) && std::ranges::any_of(results, is_unknown))
    frozen_.push_back(fmt::format("{} at {}", op, short_location(where)));
}

void Tracer::note_write(const Tensor& cell, Location where) {
  const auto is_cell = [&](const Tensor& t) { return t.impl() == cell.impl(); };
  if (std::ranges::none_of(arguments_, is_cell))
    for (std::size_t i = 0; i < arguments_.size(); ++i)
      if (const ViewInfo* view = arguments_[i].impl()->view; view != nullptr && view->base == cell.impl())
        throw UnsupportedError(
            2713,
            format_error(2713, "UnsupportedError", fmt::format("trace: argument {} is a view whose base is written", i),
                         describe(arguments_[i]), where, "pass a copy() of it, or pass its base as well"));
  if (std::ranges::any_of(written_, [&](const Written& w) { return is_cell(w.cell); })) return;
  const auto known = ids_.find(cell.node());
  const bool computed = known != ids_.end() && graph_.nodes[known->second].op != Op::input &&
                        std::ranges::none_of(constants_, [&](const Constant& c) { return is_cell(c.identity); });
  written_.push_back({cell, computed});
}

void Tracer::same_value(const Tensor& tensor, const Tensor& value, Location where) {
  const ValueId id = id_of(value, where);
  held_.emplace_back(tensor);
  ids_.emplace(tensor.node(), id);
}

void Tracer::add_written(Trace& trace, Location where) {
  for (std::size_t i = 0; i < arguments_.size(); ++i)
    if (std::ranges::any_of(written_, [&](const Written& w) { return w.cell.impl() == arguments_[i].impl(); })) {
      graph_.outputs.push_back(id_of(arguments_[i], where));
      trace.outputs.push_back({TracedOutput::Kind::argument, i});
    }
  for (const Written& w : written_) {
    const auto is_cell = [&](const Tensor& t) { return t.impl() == w.cell.impl(); };
    if (w.inside || std::ranges::any_of(arguments_, is_cell) || std::ranges::any_of(trace.results, is_cell)) continue;
    const auto constant = std::ranges::find_if(constants_, [&](const Constant& c) { return is_cell(c.identity); });
    const std::uint64_t own = constant != constants_.end() ? 2 : 1;
    if (w.cell.impl()->refs.load(std::memory_order_relaxed) <= own) continue;  // made inside, and gone
    graph_.outputs.push_back(id_of(w.cell, where));
    trace.outputs.push_back({TracedOutput::Kind::outside, constant != constants_.end()
                                                              ? static_cast<std::size_t>(constant - constants_.begin())
                                                              : TracedOutput::kNoConstant});
  }
}

void Tracer::prune(Trace& trace) const {
  std::vector<bool> needed(graph_.nodes.size());
  for (const ValueId output : graph_.outputs) needed[output] = true;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
    if (effect_of(graph_.nodes[i].op) == Effect::effect) needed[i] = true;
  for (std::size_t i = graph_.nodes.size(); i-- > 0;)
    if (needed[i])
      for (const GraphOperand& o : graph_.nodes[i].operands)
        if (!o.is_scalar()) needed[o.value] = true;
  std::fill_n(needed.begin(), arguments_.size(), true);
  std::vector<ValueId> number(graph_.nodes.size(), kNoValue);
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (!needed[i]) continue;
    number[i] = static_cast<ValueId>(trace.graph.nodes.size());
    GraphNode& node = trace.graph.nodes.emplace_back(graph_.nodes[i]);
    for (GraphOperand& o : node.operands)
      if (!o.is_scalar()) o.value = number[o.value];
  }
  for (const ValueId output : graph_.outputs) trace.graph.outputs.push_back(number[output]);
  std::vector<std::size_t> place(constants_.size(), TracedOutput::kNoConstant);
  for (std::size_t c = 0; c < constants_.size(); ++c) {
    const Constant& constant = constants_[c];
    if (!needed[constant.node] || graph_.nodes[constant.node].op != Op::input) continue;
    place[c] = trace.constants.size();
    trace.constants.push_back({number[constant.node], constant.value});
  }
  for (TracedOutput& o : trace.outputs)
    if (o.kind == TracedOutput::Kind::outside && o.index != TracedOutput::kNoConstant) o.index = place[o.index];
}

Trace Tracer::finish(std::vector<Tensor> results, Location where) {
  Trace trace;
  trace.arguments = before_, trace.results = std::move(results), trace.frozen = frozen_;
  for (std::size_t i = 0; i < trace.results.size(); ++i) {
    require_defined("trace", trace.results[i], where);
    require_elements(trace.results[i], where);
    graph_.outputs.push_back(id_of(trace.results[i], where));
    trace.outputs.push_back({TracedOutput::Kind::result, i});
  }
  add_written(trace, where);
  prune(trace);
  verify(trace.graph);
  return trace;
}

TraceRun::TraceRun(std::span<const Tensor> arguments, Location where) {
  if (tracing() || in_capture_scope())
    throw UnsupportedError(
        2711, format_error(2711, "UnsupportedError", "trace: called inside a function that is being traced or compiled",
                           {}, where, "trace only the outermost function"));
  tracer_ = std::make_unique<Tracer>(arguments, where);
  tracer = tracer_.get();
  keys_.emplace(Functionality::tracer, DispatchKeySet());
}

TraceRun::~TraceRun() { tracer = nullptr; }

Trace TraceRun::finish(std::vector<Tensor> results) { return tracer_->finish(std::move(results), {}); }

std::vector<Tensor> run_trace(const Trace& trace, std::span<const Tensor> arguments, Location where) {
  std::vector<Tensor> inputs(arguments.begin(), arguments.end());
  for (const TracedConstant& c : trace.constants) inputs.push_back(c.value);
  return run_graph(trace.graph, inputs, where);
}

}  // namespace fermata

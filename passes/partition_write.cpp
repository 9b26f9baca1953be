// See partition_write.h.
#include "passes/partition_write.h"

#include <fmt/format.h>

#include <map>

#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/ops/structures.h"
#include "passes/bucket_collectives.h"
#include "passes/pipeline.h"
#include "passes/sums_of_steps.h"

namespace fermata {
namespace {

void make_collective(GraphNode& node, const Exchange& what, std::int64_t group, std::int64_t ranks) {
  const auto reduction = static_cast<std::int64_t>(what.combine);
  switch (what.kind) {
    case ExchangeKind::all_reduce:
      node.op = Op::all_reduce;
      node.attributes = encode_list(ops::AllReduce{.group = {group}, .ranks = {ranks}, .reduction = {reduction}});
      return;
    case ExchangeKind::all_gather:
      node.op = Op::all_gather;
      node.attributes = encode_list(ops::AllGather{.group = {group}, .ranks = {ranks}, .axis = {what.axis}});
      return;
    case ExchangeKind::reduce_scatter:
      node.op = Op::reduce_scatter;
      node.attributes = encode_list(
          ops::ReduceScatter{.group = {group}, .ranks = {ranks}, .reduction = {reduction}, .axis = {what.axis}});
      return;
    case ExchangeKind::all_to_all:
      node.op = Op::all_to_all;
      node.attributes = encode_list(
          ops::AllToAll{.group = {group}, .ranks = {ranks}, .split_axis = {what.to_axis}, .concat_axis = {what.axis}});
      return;
  }
}

class Writer {
 public:
  Writer(const PartitionRequest& request, const Choices& choices)
      : request_(request),
        graph_(request.graph),
        mesh_(request.mesh),
        choices_(choices),
        calls_(choices.calls),
        sums_(sums_of_steps(graph_, request.sums)),
        written_(graph_.nodes.size()) {
    local_.sums.resize(graph_.outputs.size());
    local_.shardings.resize(graph_.nodes.size()), local_.seconds = choices.seconds;
  }

  void write(ValueId v) {
    const GraphNode& n = graph_.nodes[v];
    const DividedCall& call = calls_[v];
    local_.shardings[v] = call.result;
    if (call.is_constraint) {
      written_[v][key(call.result)] = in(n.operands[0].value, call.result, "requested by the program");
      return;
    }
    GraphNode node = n;
    Sharding now = before_combining(call);
    node.shape = own_shape(n.shape, now);
    for (std::size_t k = 0; k < n.operands.size(); ++k) {
      if (n.operands[k].is_scalar()) continue;
      const ValueId from = n.operands[k].value;
      ValueId value = call.is_free[k] ? written_[from].begin()->second
                                      : in(from, call.needs[k], fmt::format("{} needs it", name(n.op)));
      if (is_counted_elsewhere(v, k)) value = zeros_like(value);
      node.operands[k].value = value;
    }
    if (call.packed != nullptr && n.op == Op::unpack)
      node.attributes = encode_list(ops::Unpack{{call.packed->offsets[call.part]}, {}, {}});
    else if (call.packed != nullptr)
      node.shape = Shape{call.packed->bytes};
    const bool computes = call.division != nullptr || has_elements(v, node);
    if (computes && is_boxed(node.op) && call.divided != 0) check_type(node);
    ValueId value = computes ? add(std::move(node), v) : without_elements(node, call);
    if (call.division != nullptr && !call.division->programs.empty()) add_functions(v, value, *call.division);
    for (const Combination& c : call.combined)
      if (!c.is_later) value = combine(v, value, now, c);
    note_parts(v);
    written_[v][key(call.result)] = value;
  }

  void add_functions(ValueId v, ValueId value, const FunctionDivision& division) {
    const DividedFunctions& functions = *choices_.functions.at(v);
    LocalFunctions own{value, v, functions.runs(), {}, {}};
    for (std::size_t i = 0; i < functions.count(); ++i)
      own.programs.push_back(*division.programs[i]), own.whole.push_back(functions.function(i));
    local_.functions.push_back(std::move(own));
  }

  void note_gathered(ValueId v) {
    for (const GraphOperand& o : graph_.nodes[v].operands)
      if (!o.is_scalar() && !calls_[o.value].result.is_whole()) {
        local_.gathered.push_back(v);
        return;
      }
  }

  LocalProgram finish() {
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId v = graph_.outputs[i];
      const std::optional<KeptSharding>& kept = choices_.kept[i];
      const Sharding sharding = kept ? kept->sharding : calls_[v].result;
      local_.is_placed.push_back((kept && kept->is_placed) || calls_[v].is_constraint);
      local_.graph.outputs.push_back(in(v, sharding, "like the tensor that is updated"));
      local_.outputs.push_back(sharding);
      const bool holds_several = calls_[v].packed != nullptr && graph_.nodes[v].op != Op::unpack;
      local_.packed.push_back(holds_several && !sharding.is_whole() ? calls_[v].packed : nullptr);
    }
    join_collectives();
    take_numbers(local_, graph_);
    return std::move(local_);
  }

 private:
  /// Which calls are joined depends on what depends on what, and zeros know what they stand for until that is decided:
  /// so all processes decide alike.
  void join_collectives() {
    local_.calls = local_.collectives.size();
    if (local_.calls > 1 && !is_pass_disabled("bucket_collectives")) {
      const BucketedGraph found = bucket_collectives(local_.graph);
      std::vector<ValueId> scalars_of(local_.graph.nodes.size(), kNoValue);
      for (std::size_t v = 0; v < found.moved.size(); ++v) scalars_of[found.moved[v]] = local_.scalars_of[v];
      local_.scalars_of = std::move(scalars_of);
      for (std::size_t i = 0; i < found.buckets.size(); ++i) {
        local_.calls -= found.buckets[i].members.size() - 1;
        for (PlacedExchange& c : local_.collectives)
          if (std::ranges::find(found.buckets[i].members, c.local) != found.buckets[i].members.end()) c.bucket = i + 1;
      }
      for (PlacedExchange& c : local_.collectives) c.local = found.moved[c.local];
      for (LocalFunctions& f : local_.functions) f.local = found.moved[f.local];
    }
    for (GraphNode& n : local_.graph.nodes)
      if (n.op == Op::full) n.operands.clear();
  }

  /// What a custom operator gives on blocks has to be what its rule says.
  void check_type(const GraphNode& node) const {
    std::vector<TensorType> types;
    for (const GraphOperand& o : node.operands) types.push_back({local(o.value).dtype, local(o.value).shape});
    const TensorType made = infer_external(node.op, types, node.attributes, node.where);
    if (made.shape == node.shape && made.dtype == node.dtype) return;
    std::vector<ErrorOperand> operands;
    for (const TensorType& t : types) operands.push_back({"block", to_string(t.dtype, t.shape), ""});
    throw ShapeError(
        7114,
        format_error(7114, "ShapeError",
                     fmt::format("{}: its sharding rule says that it gives {} on blocks, but it gives {}",
                                 name(node.op), to_string(node.dtype, node.shape), to_string(made.dtype, made.shape)),
                     operands, node.where, "write _ for axes that it needs whole in sharding_rule"));
  }

  using Key = std::array<std::uint8_t, kMaxRank>;
  static Key key(const Sharding& s) { return s.axes; }

  ValueId add(GraphNode node, ValueId scalars_of) {
    local_.graph.nodes.push_back(std::move(node));
    local_.scalars_of.push_back(scalars_of);
    return static_cast<ValueId>(local_.graph.nodes.size() - 1);
  }
  const GraphNode& local(ValueId value) const { return local_.graph.nodes[value]; }
  GraphNode like(ValueId value, Op op) const {
    GraphNode node;
    node.op = op, node.dtype = local(value).dtype, node.shape = local(value).shape, node.where = local(value).where;
    return node;
  }

  /// Whether another process adds an operand, of what becomes a sum over the processes.
  bool is_counted_elsewhere(ValueId v, std::size_t operand) const {
    const DividedCall& call = calls_[v];
    unsigned axes = call.counted_once.empty() ? 0 : call.counted_once[operand];
    if (call.added == operand)
      for (const Combination& c : call.combined) axes |= 1u << c.mesh_axis;
    const ValueId from = graph_.nodes[v].operands[operand].value;
    if (sums_.axes[v] != 0 && sums_.axes[from] == 0 && !sums_.is_carried[from])
      axes |= sums_.axes[v] & ~calls_[from].left_as_parts();
    for (std::size_t m = 0; m < mesh_.count(); ++m)
      if ((axes >> m & 1u) != 0 && request_.coordinates[m] != 0) return true;
    return false;
  }
  /// Of a term of a sum: what it has left to whoever reads the result.
  void note_parts(ValueId v) {
    if (const unsigned left = calls_[v].left_as_parts(); left != 0) local_.sums[sums_.output[v]] |= left;
  }
  ValueId zeros_like(ValueId value) { return zeros(value, local(value).shape); }
  ValueId zeros(ValueId in_place_of, const Shape& shape) {
    GraphNode node = like(in_place_of, Op::full);
    node.shape = shape, node.scalars = {0}, node.operands = {{in_place_of, 0}};
    return add(std::move(node), kNoValue);
  }

  // ---- Blocks that are shorter than others

  Shape own_shape(const Shape& whole, const Sharding& sharding) const {
    return block_shape(whole, sharding, mesh_, request_.coordinates);
  }
  static bool is_empty(const Shape& own, const Shape& whole) {
    return element_count(own) == 0 && element_count(whole) != 0;
  }
  /// Whether this process has elements to compute with: its blocks may be empty where those of others are not.
  bool has_elements(ValueId v, const GraphNode& own) const {
    const GraphNode& n = graph_.nodes[v];
    if (n.op == Op::input) return true;
    if (is_empty(own.shape, n.shape)) return false;
    for (std::size_t k = 0; k < n.operands.size(); ++k)
      if (!n.operands[k].is_scalar() && !calls_[v].is_free[k] &&
          is_empty(local(own.operands[k].value).shape, graph_.nodes[n.operands[k].value].shape))
        return false;
    return true;
  }
  /// Its part of a result then: no elements, or what changes nothing where parts are combined.
  ValueId without_elements(const GraphNode& own, const DividedCall& call) {
    GraphNode part;
    part.op = Op::full, part.dtype = own.dtype, part.shape = own.shape, part.where = own.where;
    part.scalars = {call.combined.empty() ? 0 : neutral(call.combined[0].combine, own.dtype)};
    for (const GraphOperand& o : own.operands)
      if (!o.is_scalar()) part.operands.push_back(o);
    return add(std::move(part), kNoValue);
  }
  static std::uint64_t neutral(CollectiveReduction combine, DType dtype) {
    const bool is_flag = dtype == DType::boolean;
    const auto of = [&](Op op) { return reduce_formula(op, is_flag ? dtype : scalar_dtype(dtype)).identity[0]; };
    switch (combine) {
      case CollectiveReduction::prod: return of(Op::prod);
      case CollectiveReduction::max: return of(is_flag ? Op::any : Op::max);
      case CollectiveReduction::min: return of(is_flag ? Op::all : Op::min);
      default: return 0;
    }
  }
  /// With zeros behind its elements.
  ValueId filled(ValueId value, const Shape& shape) {
    if (element_count(local(value).shape) == 0 && !(local(value).shape == shape)) return zeros(value, shape);
    for (unsigned axis = 0; axis < shape.rank(); ++axis) {
      Shape missing = local(value).shape;
      missing[axis] = shape[axis] - missing[axis];
      if (missing[axis] == 0) continue;
      GraphNode node = like(value, Op::concat);
      node.shape[axis] = shape[axis];
      node.attributes = encode_list(ops::Concat{.axis = {axis}});
      node.operands = {{value, 0}, {zeros(value, missing), 0}};
      value = add(std::move(node), kNoValue);
    }
    return value;
  }
  ValueId part(ValueId value, const Shape& begin, const Shape& shape) {
    if (local(value).shape == shape) return value;
    GraphNode node = like(value, Op::slice);
    node.shape = shape;
    const std::vector<std::int64_t> start(begin.begin(), begin.end()), one(shape.rank(), 1);
    node.attributes = encode_list(ops::Slice{.start = {start}, .step = {one}, .counts = {}});
    node.operands = {{value, 0}};
    return add(std::move(node), kNoValue);
  }
  static Shape origin(unsigned rank) {
    Shape at;
    for (unsigned i = 0; i < rank; ++i) at.push_back(0);
    return at;
  }

  /// A value in a sharding, which may take collectives.
  ValueId in(ValueId v, const Sharding& wanted, const std::string& why) {
    auto& forms = written_[v];
    if (const auto found = forms.find(key(wanted)); found != forms.end()) return found->second;
    Sharding now = calls_[v].result;
    ValueId value = forms.at(key(now));
    for (const ReshardStep& step : plan_reshard(now, wanted, graph_.nodes[v].shape.rank(), mesh_)) {
      const Sharding next = after(step, now);
      value = step.collective ? collective(v, value, *step.collective, now, next, why) : own_block(v, value, now, next);
      now = next;
      forms.emplace(key(now), value);
    }
    if (!(now == wanted)) throw_internal("a value does not have its planned sharding", graph_.nodes[v].where);
    return value;
  }

  ValueId own_block(ValueId global, ValueId from, const Sharding& before, const Sharding& after) {
    const Shape& whole = graph_.nodes[global].shape;
    const Shape outer = block_begin(whole, before, mesh_, request_.coordinates);
    Shape begin = block_begin(whole, after, mesh_, request_.coordinates);
    for (unsigned i = 0; i < begin.rank(); ++i) begin[i] -= outer[i];
    return part(from, begin, own_shape(whole, after));
  }

  ValueId collective(ValueId global, ValueId from, const Exchange& what, const Sharding& before, const Sharding& after,
                     const std::string& why) {
    const std::int64_t n = mesh_.sizes[what.mesh_axis];
    if (n == 1) return from;
    const Shape& whole = graph_.nodes[global].shape;
    const ExchangeShapes shapes = exchange_shapes(what, whole, before, after, mesh_);
    const ValueId operand = filled(from, shapes.operand);
    GraphNode node = like(operand, Op::copy);
    const double bytes = static_cast<double>(element_count(node.shape)) * static_cast<double>(byte_size(node.dtype));
    node.shape = shapes.result;
    node.operands = {{operand, 0}};
    node.where = graph_.nodes[global].where;
    make_collective(node, what, request_.groups[what.mesh_axis], n);
    const double wire = wire_bytes(what.kind, bytes, n);
    const ValueId made = add(std::move(node), kNoValue);
    local_.collectives.push_back(
        {what, global, why, wire, request_.costs.latency + wire / request_.costs.bytes_per_second, made});
    return part(made, origin(whole.rank()), own_shape(whole, after));
  }

  ValueId combine(ValueId v, ValueId value, Sharding& now, const Combination& c) {
    const bool is_of_loop = calls_[v].packed != nullptr || calls_[v].division != nullptr;
    const std::string why = is_of_loop ? "the sum of what each process has added up in a loop"
                                       : fmt::format("the {} of the partial results of {}", fermata::name(c.combine),
                                                     name(graph_.nodes[v].op));
    const Sharding before = now;
    if (!c.scatter_axis)
      return collective(v, value, {.kind = ExchangeKind::all_reduce, .mesh_axis = c.mesh_axis, .combine = c.combine},
                        before, now, why);
    now.axes[*c.scatter_axis] |= static_cast<std::uint8_t>(1u << c.mesh_axis);
    return collective(
        v, value,
        {.kind = ExchangeKind::reduce_scatter, .mesh_axis = c.mesh_axis, .combine = c.combine, .axis = *c.scatter_axis},
        before, now, why);
  }

  const PartitionRequest& request_;
  const Graph& graph_;
  const MeshAxes& mesh_;
  const Choices& choices_;
  const std::vector<DividedCall>& calls_;
  const SumsOfSteps sums_;
  std::vector<std::map<Key, ValueId>> written_;  // by value, in each sharding that something needs
  LocalProgram local_;
};

std::string bytes_text(double bytes) {
  if (bytes < 10e3) return fmt::format("{:.0f} B", bytes);
  if (bytes < 10e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  return fmt::format("{:.1f} MB", bytes / 1e6);
}

}  // namespace

LocalProgram write_local_program(const PartitionRequest& request, const Choices& choices) {
  Writer writer(request, choices);
  for (ValueId v = 0; v < request.graph.nodes.size(); ++v) {
    writer.write(v);
    if (!choices.has_rule[v]) writer.note_gathered(v);
  }
  return writer.finish();
}

namespace {

std::string describe(const Graph& graph, const MeshAxes& mesh, const LocalProgram& program);

/// What functions of a node became, below the program that it is in.
std::string describe_functions(const MeshAxes& mesh, const LocalProgram& program, const Graph& graph) {
  std::string text;
  for (const LocalFunctions& f : program.functions)
    for (std::size_t i = 0; i < f.programs.size(); ++i)
      text += fmt::format("\nfunction {} of %{} ({})\n", i + 1, f.global, name(graph.nodes[f.global].op)) +
              describe(*f.whole[i], mesh, f.programs[i]);
  return text;
}

std::string describe(const Graph& graph, const MeshAxes& mesh, const LocalProgram& program) {
  std::string text;
  const std::string lines = to_string(graph, true);
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string one = lines.substr(at, end - at);
    at = end + 1;
    std::size_t v = graph.nodes.size();
    if (one.starts_with('%')) v = std::stoul(one.substr(1));
    text += one;
    if (v < graph.nodes.size() && graph.nodes[v].shape.rank() > 0)
      text += "  " + to_string(program.shardings[v], graph.nodes[v].shape.rank(), mesh);
    text += "\n";
  }
  text += "\ncollectives\n";
  double total = 0;
  for (const PlacedExchange& c : program.collectives) {
    total += c.wire_bytes;
    text += fmt::format("  {:<14} along {:<8} of %{:<4} {:>10}  {}{}\n",
                        kExchangeNames[static_cast<std::size_t>(c.what.kind)], mesh.names[c.what.mesh_axis], c.global,
                        bytes_text(c.wire_bytes), c.why, c.bucket == 0 ? "" : fmt::format(" (bucket {})", c.bucket));
  }
  const std::size_t count = program.collectives.size();
  text += count == 0 ? "  none\n"
                     : fmt::format("  {} in total{}, {} sent by each process\n", count,
                                   program.calls == count ? ""
                                   : program.calls == 1   ? ", in one call"
                                                          : fmt::format(", in {} calls", program.calls),
                                   bytes_text(total));
  for (const ValueId v : program.gathered)
    text += fmt::format("gathered: {} (%{}) has no rule and works on whole operands\n", name(graph.nodes[v].op), v);
  return text + describe_functions(mesh, program, graph);
}

}  // namespace

std::string describe_partition(const PartitionRequest& request, const LocalProgram& program) {
  std::string mesh;
  for (std::size_t m = 0; m < request.mesh.count(); ++m)
    mesh += fmt::format("{}{} {}", m > 0 ? ", " : "", request.mesh.names[m], request.mesh.sizes[m]);
  return fmt::format("partitioned over the mesh {}\n", mesh) + describe(request.graph, request.mesh, program);
}

}  // namespace fermata

// See recorded_program.h.
#include "frontend/engine/recorded_program.h"

#include "frontend/engine/alias.h"
#include "frontend/transforms/autograd/autograd_tape.h"

namespace fermata {

Layout Layout::of(const Node& n) {
  Layout l{n.type(), {}, 0, n.backend};
  if (!n.is_dense_leaf()) l.strides = n.extra->strides, l.offset = n.extra->offset;
  const Storage* const storage = n.storage.load(std::memory_order_acquire);
  if (storage != nullptr && storage->data == nullptr)
    if (const DistributedValue* const value = distributed_value(*storage)) l.division = value->division();
  return l;
}

Node* leaf_like(const Node& n) {
  Storage* const storage = n.storage.load(std::memory_order_acquire);
  storage->retain();
  const Layout l = Layout::of(n);
  return n.is_dense_leaf() ? make_leaf(l.type, storage, n.backend, Node::kTensor)
                           : make_strided_leaf(l.type, l.strides, l.offset, storage, n.backend, Node::kTensor);
}

const std::shared_ptr<LeafGradient>& leaf_of(const Place& gradient, std::span<const Tensor> arguments) {
  if (!gradient.is_of_argument()) return gradient.leaf;
  return grad_state(cell_of(arguments[static_cast<std::size_t>(gradient.argument)]))->leaf;
}

const Tensor& Place::find_indirect(std::span<const Tensor> arguments, Tensor& held) const {
  if (!is_of_leaf()) return held = handle_of(cell_of(arguments[static_cast<std::size_t>(argument)]));
  LeafGradient& gradient = *leaf_of(*this, arguments);
  const std::lock_guard lock(gradient.mutex);
  return held = gradient.grad;
}

ProgramNode program_node(const Walk& walk, std::uint32_t number, const DrawnRange& drawn, std::size_t leaves) {
  const Walk::Entry& entry = walk.order[number];
  const Node& n = *entry.node;
  ProgramNode p{.op = n.op, .type = Layout::of(n), .where = n.where};
  if (entry.storage != nullptr) {
    p.op = Op::input, p.leaf = static_cast<std::int32_t>(leaves);
    return p;
  }
  p.scalar_dtype = scalar_dtype(n.dtype);
  std::size_t host_numbers = 0;
  p.operands.reserve(n.operand_count());
  for (std::size_t k = 0; k < n.operand_count(); ++k) {
    p.operands.push_back(walk.operands[walk.first_operand[number] + k]);
    const Node* in = n.operand(k);
    host_numbers += in == nullptr;
    // The operands are of one dtype, but for the condition of a choice.
    if (in != nullptr && (n.op != Op::where || k > 0)) p.scalar_dtype = scalar_dtype(in->dtype);
  }
  p.attributes = attributes_of(n);
  if (n.extra != nullptr) p.subgraphs = n.extra->subgraphs;
  if (n.extra != nullptr && !n.extra->scalars.empty())
    p.scalars.assign(n.extra->scalars.begin(), n.extra->scalars.end());
  else if (host_numbers != 0)
    p.scalars = {n.scalar};
  p.is_drawn = draws_numbers(n.op) && drawn.has(p.scalars);
  if (p.is_drawn) p.scalars = {0, p.scalars[1] - drawn.first};
  return p;
}

namespace {

GraphNode graph_node(const ProgramNode& n, const std::vector<ValueId>& values, std::uint64_t key) {
  GraphNode out;
  out.op = n.op, out.dtype = n.type.type.dtype, out.shape = n.type.type.shape, out.where = n.where;
  out.attributes = n.attributes, out.scalars = n.scalars, out.subgraphs = n.subgraphs;
  if (n.is_drawn) out.scalars[0] = key;
  std::uint16_t scalar = 0;
  for (const std::uint32_t in : n.operands)
    out.operands.push_back(in == Walk::kScalarOperand ? GraphOperand{kNoValue, scalar++} : GraphOperand{values[in], 0});
  return out;
}

}  // namespace

Graph graph_of(const Program& program, std::span<const TensorType> arguments, std::span<const std::uint32_t> results,
               std::uint64_t key) {
  Graph graph;
  const auto add = [&](GraphNode&& n) {
    n.record = static_cast<std::uint32_t>(graph.nodes.size());
    graph.nodes.push_back(std::move(n));
    return static_cast<ValueId>(graph.nodes.size() - 1);
  };
  for (const TensorType& type : arguments) {
    GraphNode input;
    input.dtype = type.dtype, input.shape = type.shape;
    add(std::move(input));
  }
  std::vector<ValueId> values;
  for (const ProgramNode& n : program.nodes) {
    const Place* const place = n.leaf < 0 ? nullptr : &program.leaves[static_cast<std::size_t>(n.leaf)];
    if (place != nullptr && place->is_of_argument()) {
      values.push_back(static_cast<ValueId>(place->argument));
      continue;
    }
    GraphNode node = graph_node(n, values, key);
    if (place != nullptr) node.op = Op::full, node.scalars = {0};  // nothing depends on its elements
    values.push_back(add(std::move(node)));
  }
  for (const std::uint32_t v : results) graph.outputs.push_back(values[v]);
  return graph;
}

Graph graph_of(const Program& program, std::span<const std::uint32_t> results) {
  Graph graph;
  std::vector<ValueId> values;
  for (const ProgramNode& n : program.nodes) {
    GraphNode node = graph_node(n, values, 0);
    node.record = static_cast<std::uint32_t>(values.size());
    if (n.leaf >= 0) {
      const Shape& strides = n.type.strides;
      node.dense = strides.rank() == 0 && n.type.offset == 0;
      node.unit_inner = strides.rank() == 0 || strides[strides.rank() - 1] == 1;
      if (!node.unit_inner) node.unit_axis = last_unit_axis(strides);
    }
    values.push_back(static_cast<ValueId>(graph.nodes.size()));
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs.assign(results.begin(), results.end());
  return graph;
}

}  // namespace fermata

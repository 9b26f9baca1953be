// Random valid graphs over every op, for property tests: nodes are proposed and kept where inference takes them.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ir/error.h"
#include "ir/graph.h"
#include "ir/infer.h"
#include "ir/op_traits.h"

namespace fermata::testing {

class RandomGraph {
 public:
  explicit RandomGraph(std::mt19937_64& random) : random_(random) {}

  Graph make(std::size_t nodes) {
    while (graph_.nodes.size() < nodes) {
      const auto op = static_cast<Op>(between(0, static_cast<std::int64_t>(kOpCount) - 1));
      if (family(op) == Family::composite) continue;
      GraphNode node = propose(op);
      // Shapes that happen to fit are rare, so most graphs would be leaves; try until something depends on something.
      if (accept(node)) graph_.nodes.push_back(std::move(node));
    }
    for (std::int64_t i = between(1, 3); i > 0; --i) graph_.outputs.push_back(some_value());
    return std::move(graph_);
  }

 private:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  ValueId some_value() { return static_cast<ValueId>(between(0, static_cast<std::int64_t>(graph_.nodes.size()) - 1)); }
  const Shape& shape_of(ValueId id) const { return graph_.nodes[id].shape; }

  DType some_dtype() {
    constexpr DType kTypes[] = {DType::boolean, DType::u8,  DType::u64,  DType::i8,  DType::i32,
                                DType::i64,     DType::f16, DType::bf16, DType::f32, DType::f64};
    return kTypes[between(0, std::size(kTypes) - 1)];
  }
  Shape some_shape() {
    Shape shape;
    for (std::int64_t rank = between(0, 3); rank > 0; --rank) shape.push_back(between(0, 7) == 0 ? 0 : between(1, 3));
    return shape;
  }
  std::uint64_t some_bits(DType dtype) {
    if (dtype == DType::boolean) return static_cast<std::uint64_t>(between(0, 1));
    const std::size_t width = 8 * byte_size(dtype);
    return width == 64 ? random_() : random_() & ((1ull << width) - 1);
  }

  GraphNode propose(Op op) {
    GraphNode node;
    node.op = op;
    node.dtype = some_dtype();
    node.shape = some_shape();
    node.record = static_cast<std::uint32_t>(graph_.nodes.size());
    const int declared = info(op).operands;
    const std::int64_t operands = declared < 0 ? between(1, 3) : declared;
    if (operands > 0 && graph_.nodes.empty()) return propose(Op::input);
    if (make_operands(node)) {
      node.record = static_cast<std::uint32_t>(graph_.nodes.size());
      return node;
    }
    for (std::int64_t i = 0; i < operands; ++i) node.operands.push_back({some_value(), 0});
    if (op == Op::input) node.dense = between(0, 1) != 0, node.unit_inner = node.dense || between(0, 1) != 0;
    if (op == Op::input && !node.unit_inner && node.shape.rank() > 1)
      node.unit_axis = static_cast<int>(between(-1, node.shape.rank() - 2));
    if (is_pointwise(op)) replace_by_scalars(node);
    if (op == Op::full) node.scalars = {some_bits(node.dtype)};
    if (family(op) == Family::random) node.scalars = {random_(), random_()};
    add_attributes(node);
    return node;
  }

  /// Now and then the example that an irregular op gives to tests.
  template <class Add> bool make_example(GraphNode& node, Add&& add) {
    if (family(node.op) != Family::irregular || traits(node.op).example == nullptr || between(0, 2) != 0) return false;
    const OpCall example = traits(node.op).example();
    for (std::size_t k = 0; k < example.shapes.size(); ++k) add(example.dtypes[k], example.shapes[k]);
    node.attributes = example.attributes, node.scalars = example.scalars;
    node.dtype = example.dtype, node.shape = example.shape;
    return true;
  }

  /// Operands that would hardly ever meet by chance are made for the op.
  bool make_operands(GraphNode& node) {
    const std::int64_t m = between(1, 2), n = between(1, 2), k = between(1, 3), entries = between(0, 2);
    const auto add = [&](DType dtype, const Shape& shape) {
      GraphNode input;
      input.dtype = dtype, input.shape = shape, input.record = static_cast<std::uint32_t>(graph_.nodes.size());
      graph_.nodes.push_back(std::move(input));
      node.operands.push_back({static_cast<ValueId>(graph_.nodes.size() - 1), 0});
    };
    switch (node.op) {
      case Op::matmul_i32: add(DType::u8, {m, k}), add(DType::i8, {k, n}); return true;
      case Op::matmul_packed: add(DType::i8, {m, k}), add(DType::i8, {1, 16, 64, 4}); break;
      case Op::index_add:
        add(DType::f32, {m, n}), add(DType::i64, {k}), add(DType::f32, {k, n});
        node.attributes = {0};
        return true;
      case Op::cholesky:
      case Op::qr:
      case Op::svd:
        add(DType::f64, {k, k});
        node.attributes = {between(0, 1)};
        return true;
      case Op::solve_triangular:
        add(DType::f64, {k, k}), add(DType::f64, {k, m});
        node.attributes = {between(0, 1), between(0, 1)};
        return true;
      case Op::pinv: add(DType::f32, {m, k}), add(DType::f32, {}); return true;
      case Op::fft:
        add(DType::c64, {m, k});
        node.attributes = {1, between(0, 1)};
        return true;
      case Op::rfft:
        add(DType::f32, {m, k});
        node.attributes = {1};
        return true;
      case Op::irfft:
        add(DType::c64, {m, k});
        node.attributes = {1, 2 * k - 1};
        return true;
      case Op::searchsorted:
        add(DType::i32, {n}), add(DType::i32, {m, k});
        node.attributes = {between(0, 1)};
        return true;
      case Op::cond:
        add(DType::boolean, {}), add(DType::f32, {m});
        own(node, {one_argument(m, "exp"), one_argument(m, "negative")});
        node.attributes = {0};
        return true;
      case Op::while_loop:
        add(DType::f32, {m});
        own(node, {one_argument(m, "any"), one_argument(m, "sign")});
        node.attributes = {0};
        return true;
      case Op::scan:
        add(DType::f32, {m}), add(DType::f32, {n, m});
        own(node, {"%0 = input : f32[" + std::to_string(m) + "]\n%1 = input : f32[" + std::to_string(m) +
                   "]\n%2 = add(%0, %1) : f32[" + std::to_string(m) + "]\nreturn %2, %1\n"});
        node.attributes = {0, 1, 1, n, between(0, 1)};
        return true;
      case Op::unpack: add(DType::u8, {40}), node.dtype = DType::f32, node.shape = {m, n}; break;
      case Op::csr_matmul: add(DType::i64, {m + 1 + entries}), add(DType::f32, {entries}); break;
      case Op::csr_sampled_matmul: add(DType::i64, {m + 1 + entries}), add(DType::i32, {m, n}); break;
      case Op::gather: add(DType::f16, {m, k}), add(DType::i32, {m, n}), node.attributes = {1}; return true;
      case Op::scatter:
      case Op::scatter_add:
      case Op::scatter_multiply:
      case Op::scatter_maximum:
      case Op::scatter_minimum:
        add(DType::u8, {k, m}), add(DType::i64, {n, m}), add(DType::u8, {n, m}), node.attributes = {0};
        return true;
      case Op::fold: add(DType::f64, {m, n, k}), node.attributes = {1, k, 1}, node.shape = Shape{m, n * k}; return true;
      case Op::convolution: add(DType::f32, {m, n, 4}), add(DType::f32, {2, n, k}); break;
      case Op::convolution_data_gradient:
        add(DType::f32, {m, 2, 5 - k}), add(DType::f32, {2, n, k}), node.shape = Shape{m, n, 4};
        break;
      case Op::convolution_weight_gradient:
        add(DType::f32, {m, n, 4}), add(DType::f32, {m, 2, 5 - k}), node.shape = Shape{2, n, k};
        break;
      case Op::receive_from: node.attributes = {0, k, between(0, k - 1), between(0, 9)}; return true;
      case Op::barrier: node.attributes = {0, k}; return true;
      default: return make_collective(node, k, add) || make_example(node, add);
    }
    if (node.op == Op::unpack) node.attributes = {between(0, 6) * 4};
    if (node.op == Op::matmul_packed) node.attributes = {between(0, 64)};
    if (traits(node.op).fields.size() == 5) node.attributes = {1, 1, 0, 0, 1};  // a convolution or one of its gradients
    if (traits(node.op).fields.size() == 5) return true;
    if (node.op == Op::csr_sampled_matmul) add(DType::i32, {k, n});
    if (node.op != Op::csr_matmul) return true;
    node.attributes = {k, between(0, 1)};
    add(DType::f32, {node.attributes[1] != 0 ? m : k, n});
    return true;
  }

  /// A call that `ranks` ranks make together.
  template <class Add> bool make_collective(GraphNode& node, std::int64_t ranks, Add&& add) {
    const std::int64_t reduction = between(0, 4), root = between(0, ranks - 1), axis = between(0, 1);
    switch (node.op) {
      case Op::all_reduce: node.attributes = {0, ranks, reduction}; break;
      case Op::reduce_to: node.attributes = {0, ranks, reduction, root}; break;
      case Op::all_gather: node.attributes = {0, ranks, axis}; break;
      case Op::reduce_scatter: node.attributes = {0, ranks, reduction, axis}; break;
      case Op::all_to_all: node.attributes = {0, ranks, axis, 1 - axis}; break;
      case Op::broadcast_from: node.attributes = {0, ranks, root}; break;
      case Op::scatter_from:
      case Op::gather_to: node.attributes = {0, ranks, root, axis}; break;
      case Op::permute_ranks: node.attributes = {0, ranks, 0, root}; break;
      case Op::send_to: node.attributes = {0, ranks, root, 7}; break;
      default: return false;
    }
    add(DType::f32, {2 * ranks, 3 * ranks});
    return true;
  }

  /// A function of one vector: a unary op, or whether an element is above 1.
  static std::string one_argument(std::int64_t size, const std::string& op) {
    const std::string type = "f32[" + std::to_string(size) + "]", input = "%0 = input : " + type + "\n";
    if (op == "any")
      return input + "%1 = greater(%0, 1) : bool[" + std::to_string(size) +
             "]\n%2 = any(%1) {axes=[0], keepdims=false} : bool[]\nreturn %2\n";
    return input + "%1 = " + op + "(%0) : " + type + "\nreturn %1\n";
  }
  static void own(GraphNode& node, const std::vector<std::string>& functions) {
    std::vector<std::unique_ptr<const Subgraph>> owned;
    for (const std::string& text : functions) owned.push_back(make_subgraph(parse_graph(text)));
    node.subgraphs = std::make_shared<const Subgraphs>(std::move(owned));
  }

  void replace_by_scalars(GraphNode& node) {
    for (std::size_t i = 1; i < node.operands.size(); ++i)
      if (between(0, 3) == 0) node.operands[i] = {kNoValue, static_cast<std::uint16_t>(scalar_count(node))};
    node.scalars.assign(scalar_count(node), 0);
  }
  static std::size_t scalar_count(const GraphNode& node) {
    std::size_t count = 0;
    for (const GraphOperand& operand : node.operands) count += operand.is_scalar() ? 1 : 0;
    return count;
  }

  void add_attributes(GraphNode& node) {
    if (node.op == Op::iota) node.attributes = {between(0, 2)}, node.dtype = DType::i64;
    if (node.operands.empty()) return;
    const Shape& x = node.operands[0].is_scalar() ? node.shape : shape_of(node.operands[0].value);
    const std::int64_t rank = x.rank();
    const auto mask = [&] { return between(0, (std::int64_t{1} << rank) - 1); };
    if (family(node.op) == Family::reduce) node.attributes = {mask(), between(0, 1)};
    switch (node.op) {
      case Op::reshape: node.shape = Shape{element_count(x)}; break;
      case Op::broadcast_to:
        node.shape = x;
        if (rank < 4) node.shape = Shape{between(0, 3)}, append(node.shape, x);
        break;
      case Op::expand_dims: node.attributes = {between(0, 7)}; break;
      case Op::unfold:
        node.attributes = {between(0, std::max<std::int64_t>(rank - 1, 0)), between(1, 2), between(1, 2), 1};
        break;
      case Op::squeeze: node.attributes = {mask()}; break;
#define FERMATA_SCAN(name, monoid, rule, doc) case Op::name:
#include "ir/ops.def"
      case Op::concat:
      case Op::take: node.attributes = {between(0, std::max<std::int64_t>(rank - 1, 0))}; break;
      case Op::sort:
      case Op::argsort: node.attributes = {between(0, std::max<std::int64_t>(rank - 1, 0)), between(0, 1)}; break;
      case Op::top_k_indices: node.attributes = {0, between(0, 1), between(0, 1)}; break;
      case Op::flatnonzero: node.dtype = DType::i64, node.shape = Shape{between(0, 4)}; break;
      case Op::permute:
        for (std::int64_t i = 0; i < rank; ++i) node.attributes.push_back(rank - 1 - i);
        break;
      case Op::slice:
        node.shape = x;
        for (std::int64_t i = 0; i < rank; ++i)
          node.attributes.push_back(std::max<std::int64_t>(x[static_cast<std::size_t>(i)] - 1, 0));
        for (std::int64_t i = 0; i < rank; ++i) node.attributes.push_back(-1);
        break;
      case Op::update:
        node.attributes = {0};
        for (const std::int64_t stride : dense_strides(shape_of(node.operands[1].value)))
          node.attributes.push_back(stride);
        break;
      default: break;
    }
  }
  static void append(Shape& shape, const Shape& rest) {
    for (const std::int64_t size : rest) shape.push_back(size);
  }

  bool accept(GraphNode& node) {
    if (node.op == Op::where && node.operands[0].is_scalar()) return false;
    std::vector<TensorType> operands;
    for (const GraphOperand& operand : node.operands)
      if (!operand.is_scalar()) operands.push_back({graph_.nodes[operand.value].dtype, shape_of(operand.value)});
    try {
      const TensorType type =
          infer(node.op, operands, node.attributes, {node.dtype, node.shape}, {}, node.subgraphs.get());
      if (element_count(type.shape) > 2000) return false;
      node.dtype = type.dtype, node.shape = type.shape;
    } catch (const Error&) { return false; }
    const DType scalar = operand_dtype(graph_, node);
    if (is_pointwise(node.op))
      for (std::uint64_t& bits : node.scalars) bits = is_complex(scalar) ? 0 : some_bits(scalar);
    return true;
  }

  std::mt19937_64& random_;
  Graph graph_;
};

}  // namespace fermata::testing

// See split_rules.h. A function for each struct of an irregular op; regular families share one each.
#include "passes/split_rules.h"

#include <array>
#include <numeric>

#include "ir/custom_op.h"
#include "ir/ops/reduce.h"
#include "ir/ops/structures.h"
#include "passes/custom_split_rules.h"

namespace fermata {
namespace {

using Place = std::pair<std::size_t, std::size_t>;  // an operand and an axis of it

/// Collects the factors of one call.
class Splits {
 public:
  Splits(const Graph& graph, const GraphNode& node) : node_(node) {
    for (const GraphOperand& o : node.operands) shapes_.push_back(o.is_scalar() ? Shape() : graph.nodes[o.value].shape);
    rule_.is_free.resize(shapes_.size());
  }
  const GraphNode& node() const { return node_; }
  const Shape& operand(std::size_t k) const { return shapes_[k]; }
  std::size_t operands() const { return shapes_.size(); }
  unsigned rank() const { return node_.shape.rank(); }

  /// An axis of the result, and the axes that correspond to it. Those of another size are broadcast, and needed whole.
  void along(unsigned axis, std::span<const Place> places) {
    SplitFactor factor{.result = static_cast<std::int8_t>(axis), .operands = nowhere(), .size = node_.shape[axis]};
    for (const auto& [k, from] : places)
      if (shapes_[k][from] == factor.size) factor.operands[k] = static_cast<std::int8_t>(from);
    add(std::move(factor));
  }
  void along(unsigned axis, std::initializer_list<Place> places) {
    along(axis, std::span(places.begin(), places.size()));
  }
  /// Contracted axes.
  void contract(std::initializer_list<Place> places, CollectiveReduction combine = CollectiveReduction::sum) {
    SplitFactor factor{.operands = nowhere(), .combine = combine};
    for (const auto& [k, from] : places)
      factor.operands[k] = static_cast<std::int8_t>(from), factor.size = shapes_[k][from];
    add(std::move(factor));
  }
  /// Parts of the leading axis of a group of axes that a reshape splits or merges.
  void leading(unsigned axis, unsigned from) {
    SplitFactor factor{.result = static_cast<std::int8_t>(axis),
                       .operands = nowhere(),
                       .size = std::gcd(node_.shape[axis], shapes_[0][from])};
    factor.operands[0] = static_cast<std::int8_t>(from);
    add(std::move(factor));
  }
  /// All operands are broadcast to the result, which has all their axes but for `whole`.
  void broadcast(int whole = -1, std::size_t first = 0, std::size_t end = ~std::size_t{0}) {
    for (unsigned i = 0; i < rank(); ++i) {
      if (static_cast<int>(i) == whole) continue;
      std::vector<Place> places;
      for (std::size_t k = first; k < std::min(end, shapes_.size()); ++k)
        if (const unsigned r = shapes_[k].rank(), lead = rank() - r; r <= rank() && i >= lead)
          places.emplace_back(k, i - lead);
      along(i, places);
    }
  }
  void free(std::size_t k) { rule_.is_free[k] = true; }
  void added(std::size_t k) { rule_.added = k; }
  SplitRule take() { return std::move(rule_); }

 private:
  std::vector<std::int8_t> nowhere() const { return std::vector<std::int8_t>(shapes_.size(), SplitFactor::kNone); }
  void add(SplitFactor factor) {
    if (factor.size > 1) rule_.factors.push_back(std::move(factor));
  }

  const GraphNode& node_;
  std::vector<Shape> shapes_;
  SplitRule rule_;
};

// ---- Regular families

void split_reduction(const GraphNode& n, Splits& s) {
  const auto op = attributes_of<ops::Reduction>(n);
  const auto combine = [&]() -> std::optional<CollectiveReduction> {
    switch (n.op) {
      case Op::sum: return CollectiveReduction::sum;
      case Op::prod: return CollectiveReduction::prod;
      case Op::max:
      case Op::any: return CollectiveReduction::max;
      case Op::min:
      case Op::all: return CollectiveReduction::min;
      default: return std::nullopt;
    }
  }();
  for (unsigned i = 0, to = 0; i < s.operand(0).rank(); ++i) {
    if (!op.is_reduced(i))
      s.along(to++, {{0, i}});
    else {
      to += op.keepdims.value ? 1 : 0;
      if (combine) s.contract({{0, i}}, *combine);
    }
  }
}

// ---- Irregular ops, by struct. One without a function works on whole operands.

void split(const ops::Full&, Splits& s) { s.broadcast(); }
void split(const ops::Iota& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Cast&, Splits& s) { s.broadcast(); }
void split(const ops::Copy&, Splits& s) { s.broadcast(); }
void split(const ops::ComplexOfParts&, Splits& s) { s.broadcast(); }
void split(const ops::BroadcastTo&, Splits& s) { s.broadcast(); }
void split(const ops::After&, Splits& s) { s.free(1), s.broadcast(-1, 0, 1); }
void split(const ops::Scan& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Sort& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Argsort& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::TopKIndices& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Fft& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Rfft& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Irfft& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Dct& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Concat& op, Splits& s) { s.broadcast(static_cast<int>(op.axis.value)); }
void split(const ops::Fold& op, Splits& s) {
  for (unsigned i = 0; i < s.rank(); ++i)
    if (i != op.axis.value) s.along(i, {{0, i}});
}
void split(const ops::Unfold& op, Splits& s) {
  for (unsigned i = 0; i + 1 < s.rank(); ++i)
    if (i != op.axis.value) s.along(i, {{0, i}});
}
void split(const ops::Searchsorted&, Splits& s) {
  for (unsigned i = 0; i < s.rank(); ++i) s.along(i, {{1, i}});
}
void split(const ops::Bincount&, Splits& s) {
  const unsigned last = s.operand(0).rank() - 1;
  const bool is_weighted = s.operands() > 1;
  for (unsigned i = 0; i < last; ++i) is_weighted ? s.along(i, {{0, i}, {1, i}}) : s.along(i, {{0, i}});
  is_weighted ? s.contract({{0, last}, {1, last}}) : s.contract({{0, last}});
}

void split(const ops::ExpandDims& op, Splits& s) {
  for (unsigned i = 0, from = 0; i < s.rank(); ++i)
    if (!op.is_new(i)) s.along(i, {{0, from++}});
}
void split(const ops::Squeeze& op, Splits& s) {
  for (unsigned i = 0, to = 0; i < s.operand(0).rank(); ++i)
    if (!op.is_gone(i)) s.along(to++, {{0, i}});
}
void split(const ops::Permute& op, Splits& s) {
  for (unsigned i = 0; i < s.rank(); ++i) s.along(i, {{0, static_cast<std::size_t>(op.axes.value[i])}});
}
void split(const ops::Slice& op, Splits& s) {
  for (unsigned i = 0; i < s.rank(); ++i)
    if (op.start.value[i] == 0 && op.step.value[i] == 1 && s.node().shape[i] == s.operand(0)[i]) s.along(i, {{0, i}});
}
/// Groups of axes of operand and result with equal products of sizes correspond; a block of the first axis of one
/// is a block of the first of the others.
void split(const ops::Reshape&, Splits& s) {
  const Shape &from = s.operand(0), &to = s.node().shape;
  if (element_count(from) == 0) return;
  for (unsigned i = 0, k = 0; i < from.rank() && k < to.rank();) {
    while (i < from.rank() && from[i] == 1) ++i;
    while (k < to.rank() && to[k] == 1) ++k;
    if (i == from.rank() || k == to.rank()) return;
    s.leading(k, i);
    std::int64_t a = from[i++], b = to[k++];
    while (a != b)
      if (a < b)
        a *= from[i++];
      else
        b *= to[k++];
  }
}

void split_product(Splits& s) {
  const unsigned left = s.operand(0).rank(), right = s.operand(1).rank();
  const unsigned matrix = (left >= 2) + (right >= 2), batch = s.rank() - matrix;
  for (unsigned i = 0; i < batch; ++i) {
    std::vector<Place> places;
    const auto add = [&](std::size_t k, unsigned rank) {
      if (rank >= 2 && i + rank - 2 >= batch) places.emplace_back(k, i + rank - 2 - batch);
    };
    add(0, left), add(1, right);
    s.along(i, places);
  }
  if (left >= 2) s.along(batch, {{0, left - 2}});
  if (right >= 2) s.along(s.rank() - 1, {{1, right - 1}});
  s.contract({{0, left - 1}, {1, right >= 2 ? right - 2 : 0}});
}
void split(const ops::Matmul&, Splits& s) { split_product(s); }
void split(const ops::MatmulBytes&, Splits& s) { split_product(s); }
void split(const ops::MatmulHalves&, Splits& s) { split_product(s); }
void split_rows(Splits& s) {
  for (unsigned i = 0; i + 1 < s.rank(); ++i) s.along(i, {{0, i}});
}
void split(const ops::MatmulPacked&, Splits& s) { split_rows(s); }
void split(const ops::MatmulWeights&, Splits& s) { split_rows(s); }
void split(const ops::CsrMatmul&, Splits& s) { s.along(1, {{2, 1}}); }
void split(const ops::CsrSampledMatmul&, Splits& s) { s.contract({{1, 1}, {2, 1}}); }

void split(const ops::Convolution& op, Splits& s) {
  s.along(0, {{0, 0}});
  if (op.groups.value != 1) return;
  s.along(1, {{1, 0}});
  s.contract({{0, 1}, {1, 1}});
}
void split(const ops::ConvolutionDataGradient& op, Splits& s) {
  s.along(0, {{0, 0}});
  if (op.groups.value != 1) return;
  s.along(1, {{1, 1}});
  s.contract({{0, 1}, {1, 0}});
}
void split(const ops::ConvolutionWeightGradient& op, Splits& s) {
  s.contract({{0, 0}, {1, 0}});
  if (op.groups.value != 1) return;
  s.along(0, {{1, 1}});
  s.along(1, {{0, 1}});
}

void split(const ops::Take& op, Splits& s) {
  const auto axis = static_cast<unsigned>(op.axis.value), index = s.operand(1).rank();
  for (unsigned i = 0; i < s.rank(); ++i)
    if (i < axis)
      s.along(i, {{0, i}});
    else if (i < axis + index)
      s.along(i, {{1, i - axis}});
    else
      s.along(i, {{0, i - index + 1}});
}
void split(const ops::IndexAdd& op, Splits& s) {
  const auto axis = static_cast<unsigned>(op.axis.value), index = s.operand(1).rank();
  for (unsigned i = 0; i < s.rank(); ++i)
    if (i != axis) s.along(i, {{0, i}, {2, i < axis ? i : i + index - 1}});
  for (unsigned i = 0; i < index; ++i) s.contract({{1, i}, {2, axis + i}});
  s.added(0);
}
/// Axes other than the indexed one that have the same size in the index as in x.
void split_at_positions(unsigned axis, Splits& s, bool is_scatter) {
  for (unsigned i = 0; i < s.operand(0).rank(); ++i)
    if (i != axis && s.operand(0)[i] == s.operand(1)[i])
      is_scatter ? s.along(i, {{0, i}, {1, i}, {2, i}}) : s.along(i, {{0, i}, {1, i}});
}
void split(const ops::Gather& op, Splits& s) {
  const auto axis = static_cast<unsigned>(op.axis.value);
  split_at_positions(axis, s, false);
  s.along(axis, {{1, axis}});
}
void split(const ops::GridSample&, Splits& s) {
  s.along(0, {{0, 0}, {1, 0}});
  s.along(1, {{0, 1}});
  s.along(2, {{1, 1}});
}
void split(const ops::Scatter& op, Splits& s) {
  const auto axis = static_cast<unsigned>(op.axis.value);
  split_at_positions(axis, s, true);
  if (s.node().op != Op::scatter_add) return;
  s.contract({{1, axis}, {2, axis}});
  s.added(0);
}

/// A result for each matrix of a stack; the axes of the stack are the leading ones of all.
void split_stacks(Splits& s) {
  const unsigned batch = s.operand(0).rank() < 2 ? 0 : s.operand(0).rank() - 2;
  for (std::size_t k = 1; k < s.operands(); ++k)
    if (s.operand(k).rank() != s.operand(0).rank()) return;
  for (unsigned i = 0; i < batch; ++i) {
    std::vector<Place> places;
    for (std::size_t k = 0; k < s.operands(); ++k) places.emplace_back(k, i);
    s.along(i, places);
  }
}
void split(const ops::Cholesky&, Splits& s) { split_stacks(s); }
void split(const ops::Solve&, Splits& s) { split_stacks(s); }
void split(const ops::SolveTriangular&, Splits& s) { split_stacks(s); }
void split(const ops::MatrixOfMatrix&, Splits& s) { split_stacks(s); }
void split(const ops::Det&, Splits& s) { split_stacks(s); }
void split(const ops::Slogdet&, Splits& s) { split_stacks(s); }
void split(const ops::Qr&, Splits& s) { split_stacks(s); }
void split(const ops::Eigh&, Splits& s) { split_stacks(s); }
void split(const ops::Eigvalsh&, Splits& s) { split_stacks(s); }
void split(const ops::Svd&, Splits& s) { split_stacks(s); }
void split(const ops::Svdvals&, Splits& s) { split_stacks(s); }

// ---- The table

using SplitOp = void (*)(const GraphNode&, Splits&);
template <class O> constexpr SplitOp split_of() {
  if constexpr (requires(const O& op, Splits& s) { split(op, s); })
    return [](const GraphNode& n, Splits& s) { split(attributes_of<O>(n), s); };
  else
    return nullptr;
}

constexpr auto kSplits = [] {
  std::array<SplitOp, kOpCount> table{};
#define FERMATA_IRREGULAR(name, structure, doc) table[static_cast<std::size_t>(Op::name)] = split_of<ops::structure>();
#include "ir/ops.def"
  return table;
}();

}  // namespace

std::optional<SplitRule> split_rule(const Graph& graph, const GraphNode& node) {
  if (is_boxed(node.op)) return custom_split_rule(graph, node);
  Splits splits(graph, node);
  if (is_pointwise(node.op))
    splits.broadcast();
  else if (family(node.op) == Family::reduce)
    split_reduction(node, splits);
  else if (static_cast<std::size_t>(node.op) >= kOpCount || kSplits[static_cast<std::size_t>(node.op)] == nullptr)
    return std::nullopt;
  else
    kSplits[static_cast<std::size_t>(node.op)](node, splits);
  return splits.take();
}

}  // namespace fermata

// See bucket_collectives.h.
#include "passes/bucket_collectives.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <queue>
#include <tuple>

#include "ir/custom_op.h"
#include "ir/op_traits.h"
#include "ir/ops/structures.h"
#include "passes/program.h"

namespace fermata {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

/// Calls that all ranks of a group make; other calls with an effect, such as send and receive, keep their place.
bool is_of_all_ranks(Op op) {
  switch (op) {
    case Op::all_reduce:
    case Op::reduce_to:
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::all_to_all:
    case Op::broadcast_from:
    case Op::scatter_from:
    case Op::gather_to:
    case Op::permute_ranks: return true;
    default: return false;
  }
}

enum class Effects : std::uint8_t { none, of_all_ranks, others };

/// Of a call, and of the functions that it calls.
Effects effects_of(const GraphNode& n) {
  Effects found = Effects::none;
  if (effect_of(n.op) == Effect::effect) found = is_of_all_ranks(n.op) ? Effects::of_all_ranks : Effects::others;
  for (std::size_t i = 0; n.subgraphs != nullptr && i < n.subgraphs->size(); ++i)
    for (const GraphNode& inner : (*n.subgraphs)[i].graph().nodes) found = std::max(found, effects_of(inner));
  return found;
}

/// The properties that the calls of a bucket share.
using Kind = std::tuple<Op, DType, std::vector<std::int64_t>>;

class Buckets {
 public:
  explicit Buckets(const Graph& graph) : graph_(graph), reach_(graph.nodes.size()), candidate_of_(graph.nodes.size()) {
    for (const GraphNode& n : graph.nodes) effects_.push_back(effects_of(n));
  }

  BucketedGraph run(Graph& to) {
    if (!find_chain()) return unchanged();
    find_candidates();
    choose();
    if (std::ranges::none_of(buckets_, [](const Bucket& b) { return b.members.size() > 1; })) return unchanged();
    write();
    to = std::move(to_);
    return {std::move(moved_), std::move(written_)};
  }

 private:
  struct Candidate {
    ValueId node;
    std::size_t bucket = kNone;
  };
  struct Bucket {
    std::vector<std::size_t> members;  // candidates
    std::int64_t bytes = 0;
  };
  using Set = std::vector<std::uint64_t>;  // of candidates: a bit each

  BucketedGraph unchanged() const {
    BucketedGraph same;
    for (ValueId v = 0; v < graph_.nodes.size(); ++v) same.moved.push_back(v);
    return same;
  }

  /// In a recorded graph, operands define the order of effects: the last operand of each is the one before. False if it
  /// is not.
  bool find_chain() {
    for (const GraphNode& n : graph_.nodes)
      is_chained_ = is_chained_ || (is_of_all_ranks(n.op) && n.operands.size() > traits(n.op).least_operands);
    if (!is_chained_) return true;
    for (ValueId v = 0; v < graph_.nodes.size(); ++v) {
      if (effects_[v] == Effects::none) continue;
      const GraphNode& n = graph_.nodes[v];
      if (first_effect_ == kNoValue)
        first_effect_ = v;
      else if (n.operands.empty() || n.operands.back() != GraphOperand{last_effect_, 0})
        return false;
      last_effect_ = v;
    }
    last_effect_ = kNoValue;
    return true;
  }
  /// Operands whose elements are read, and not only waited for.
  std::size_t read_operands(ValueId v) const {
    const bool waits = is_chained_ && effects_[v] != Effects::none && v != first_effect_;
    return graph_.nodes[v].operands.size() - (waits ? 1 : 0);
  }

  std::int64_t bytes_of(ValueId v) const {
    const GraphNode& n = graph_.nodes[v];
    return element_count(n.shape) * static_cast<std::int64_t>(byte_size(n.dtype));
  }
  ValueId operand_of(ValueId call) const { return graph_.nodes[call].operands[0].value; }

  /// A scattered block must be the first part of its operand.
  bool can_join(ValueId v) const {
    const GraphNode& n = graph_.nodes[v];
    if (n.op != Op::all_reduce && n.op != Op::reduce_scatter) return false;
    const std::int64_t bytes = bytes_of(operand_of(v));
    if (bytes == 0 || bytes > kMostBytesOfMember) return false;
    if (n.op == Op::all_reduce) return true;
    const auto axis = static_cast<unsigned>(attributes_of<ops::ReduceScatter>(n).axis.value);
    return std::all_of(n.shape.begin(), n.shape.begin() + axis, [](std::int64_t size) { return size == 1; });
  }
  Kind kind_of(ValueId v) const {
    const GraphNode& n = graph_.nodes[v];
    if (n.op == Op::all_reduce) return {n.op, n.dtype, n.attributes};
    const auto op = attributes_of<ops::ReduceScatter>(n);
    return {n.op, n.dtype, {op.group.value, op.ranks.value, op.reduction.value}};
  }

  // ---- Choice

  void find_candidates() {
    std::fill(candidate_of_.begin(), candidate_of_.end(), kNone);
    for (ValueId v = 0; v < graph_.nodes.size(); ++v)
      if (can_join(v)) candidate_of_[v] = candidates_.size(), candidates_.push_back({v});
    const std::size_t words = (candidates_.size() + 63) / 64;
    Set all(words), before(words);  // candidates so far; those before a call that keeps its place
    for (ValueId v = 0; v < graph_.nodes.size(); ++v) {
      const GraphNode& n = graph_.nodes[v];
      Set& set = reach_[v];
      set.assign(words, 0);
      const auto add = [&](const Set& more) {
        for (std::size_t w = 0; w < words; ++w) set[w] |= more[w];
      };
      for (std::size_t k = 0; k < read_operands(v); ++k)
        if (!n.operands[k].is_scalar()) add(reach_[n.operands[k].value]);
      if (effects_[v] != Effects::none) {
        add(before);
        if (effects_[v] == Effects::others) add(all), before = all;
      }
      if (const std::size_t c = candidate_of_[v]; c != kNone) {
        needs_.push_back(set);
        set[c / 64] |= std::uint64_t{1} << (c % 64), all[c / 64] |= std::uint64_t{1} << (c % 64);
      }
    }
  }

  /// Each call joins the last bucket of its kind, unless it depends on that, or the bucket is full.
  void choose() {
    std::map<Kind, std::size_t> open;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      const ValueId v = candidates_[c].node;
      const std::int64_t bytes = bytes_of(operand_of(v));
      const auto [at, is_new] = open.try_emplace(kind_of(v), buckets_.size());
      if (!is_new && (buckets_[at->second].bytes + bytes > kBucketBytes || depends_on(c, at->second)))
        at->second = buckets_.size();
      if (at->second == buckets_.size()) buckets_.emplace_back();
      candidates_[c].bucket = at->second;
      buckets_[at->second].members.push_back(c), buckets_[at->second].bytes += bytes;
    }
  }
  /// Directly or through buckets. The reverse is impossible: values that depend on a call come after it, and no
  /// bucket contains any of them yet.
  bool depends_on(std::size_t candidate, std::size_t bucket) const {
    std::vector<bool> seen(buckets_.size());
    std::vector<std::size_t> stack{candidate};
    while (!stack.empty()) {
      const Set& needs = needs_[stack.back()];
      stack.pop_back();
      for (std::size_t c = 0; c < candidates_.size(); ++c) {
        if ((needs[c / 64] >> (c % 64) & 1u) == 0) continue;
        const std::size_t b = candidates_[c].bucket;
        if (b == bucket) return true;
        if (seen[b]) continue;
        seen[b] = true;
        stack.insert(stack.end(), buckets_[b].members.begin(), buckets_[b].members.end());
      }
    }
    return false;
  }

  // ---- The new graph: in the original order, with each bucket in the place of its last member

  bool is_bucketed(ValueId v) const {
    const std::size_t c = candidate_of_[v];
    return c != kNone && buckets_[candidates_[c].bucket].members.size() > 1;
  }
  ValueId last_of(ValueId v) const {
    return is_bucketed(v) ? candidates_[buckets_[candidates_[candidate_of_[v]].bucket].members.back()].node : v;
  }

  void write() {
    const std::size_t count = graph_.nodes.size();
    moved_.assign(count, kNoValue);
    std::vector<std::vector<ValueId>> followers(count);
    std::vector<std::size_t> waits_for(count, 0);
    const auto order = [&](ValueId first, ValueId then) {
      if (last_of(first) != last_of(then))
        followers[last_of(first)].push_back(last_of(then)), ++waits_for[last_of(then)];
    };
    std::vector<ValueId> effects;  // since the last one that keeps its place, inclusive
    for (ValueId v = 0; v < count; ++v) {
      const GraphNode& n = graph_.nodes[v];
      for (std::size_t k = 0; k < read_operands(v); ++k)
        if (!n.operands[k].is_scalar()) order(n.operands[k].value, v);
      if (effects_[v] == Effects::none) continue;
      if (effects_[v] == Effects::of_all_ranks) {
        if (!effects.empty() && effects_[effects[0]] == Effects::others) order(effects[0], v);
      } else {
        for (const ValueId e : effects) order(e, v);
        effects.clear();
      }
      effects.push_back(v);
    }
    std::priority_queue<ValueId, std::vector<ValueId>, std::greater<>> ready;
    for (ValueId v = 0; v < count; ++v)
      if (last_of(v) == v && waits_for[v] == 0) ready.push(v);
    while (!ready.empty()) {
      const ValueId v = ready.top();
      ready.pop();
      if (is_bucketed(v))
        join(buckets_[candidates_[candidate_of_[v]].bucket]);
      else
        keep(v);
      for (const ValueId next : followers[v])
        if (--waits_for[next] == 0) ready.push(next);
    }
    for (const ValueId v : graph_.outputs) to_.outputs.push_back(moved_[v]);
  }

  ValueId add(GraphNode node, Effects effects = Effects::none) {
    if (is_chained_ && effects != Effects::none) {
      if (last_effect_ != kNoValue) node.operands.push_back({last_effect_, 0});
      last_effect_ = static_cast<ValueId>(to_.nodes.size());
    }
    to_.nodes.push_back(std::move(node));
    return static_cast<ValueId>(to_.nodes.size() - 1);
  }
  void keep(ValueId v) {
    GraphNode n = graph_.nodes[v];
    n.operands.resize(read_operands(v));
    for (GraphOperand& o : n.operands)
      if (!o.is_scalar()) o.value = moved_[o.value];
    moved_[v] = add(std::move(n), effects_[v]);
  }

  ValueId view(Op op, ValueId of, const Shape& shape, std::vector<std::int64_t> attributes, const GraphNode& like) {
    GraphNode node;
    node.op = op, node.dtype = like.dtype, node.shape = shape, node.where = like.where, node.record = like.record;
    node.attributes = std::move(attributes), node.operands = {{of, 0}};
    return add(std::move(node));
  }
  ValueId reshaped(ValueId of, const Shape& shape, const GraphNode& like) {
    if (to_.nodes[of].shape == shape) return of;
    return view(Op::reshape, of, shape, encode_list(ops::Reshape{}), like);
  }
  ValueId sliced(ValueId of, unsigned axis, std::int64_t start, std::int64_t count, const GraphNode& like) {
    Shape shape = to_.nodes[of].shape;
    std::vector<std::int64_t> begin(shape.rank(), 0), one(shape.rank(), 1);
    shape[axis] = count, begin[axis] = start;
    return view(Op::slice, of, shape, encode_list(ops::Slice{.start = {begin}, .step = {one}, .counts = {}}), like);
  }

  /// Concatenates operands: those of an all_reduce in one row; those of a reduce_scatter in a row per rank.
  void join(const Bucket& bucket) {
    const GraphNode& first = graph_.nodes[candidates_[bucket.members[0]].node];
    const bool scatters = first.op == Op::reduce_scatter;
    const std::int64_t ranks = scatters ? attributes_of<ops::ReduceScatter>(first).ranks.value : 1;
    const unsigned axis = scatters ? 1 : 0;
    const auto row = [&](std::int64_t rows, std::int64_t count) {
      return scatters ? Shape{rows, count} : Shape{count};
    };
    GraphNode rows;
    rows.op = Op::concat, rows.dtype = first.dtype, rows.where = first.where, rows.record = first.record;
    rows.attributes = encode_list(ops::Concat{.axis = {axis}});
    std::vector<std::int64_t> counts;  // of each row
    std::int64_t total = 0;
    for (const std::size_t c : bucket.members) {
      const ValueId v = candidates_[c].node, x = operand_of(v);
      counts.push_back(element_count(graph_.nodes[x].shape) / ranks), total += counts.back();
      rows.operands.push_back({reshaped(moved_[x], row(ranks, counts.back()), graph_.nodes[v]), 0});
    }
    rows.shape = row(ranks, total);
    GraphNode call = first;
    if (scatters) {
      auto op = attributes_of<ops::ReduceScatter>(first);
      op.axis.value = 0, call.attributes = encode_list(op);
    }
    call.shape = row(1, total);
    call.operands = {{add(std::move(rows)), 0}};
    const ValueId made = add(std::move(call), Effects::of_all_ranks);
    written_.push_back({made, {}});
    std::int64_t at = 0;
    for (std::size_t i = 0; i < counts.size(); at += counts[i++]) {
      const ValueId v = candidates_[bucket.members[i]].node;
      const GraphNode& n = graph_.nodes[v];
      moved_[v] = reshaped(sliced(made, axis, at, counts[i], n), n.shape, n);
      written_.back().members.push_back(v);
    }
  }

  const Graph& graph_;
  std::vector<Effects> effects_;           // by value
  std::vector<Set> reach_;                 // by value: the candidates that it depends on
  std::vector<std::size_t> candidate_of_;  // by value
  std::vector<Candidate> candidates_;
  std::vector<Set> needs_;  // by candidate
  std::vector<Bucket> buckets_;
  bool is_chained_ = false;
  ValueId first_effect_ = kNoValue;

  Graph to_;
  std::vector<ValueId> moved_;
  std::vector<CollectiveBucket> written_;
  ValueId last_effect_ = kNoValue;
};

}  // namespace

BucketedGraph bucket_collectives(Graph& graph) {
  const Graph before = graph;
  return Buckets(before).run(graph);
}

bool bucket_collectives(Program& program) { return !bucket_collectives(program.graph).buckets.empty(); }

}  // namespace fermata

// Graph editing shared by several passes.
#pragma once

#include "ir/graph.h"

namespace fermata {

/// Removes nodes that no output needs and that have no effect, and renumbers the rest in order. Inputs stay: they are
/// the plan's leaves.
bool remove_dead(Graph& graph);

/// Builds a graph from another graph, node by node, with insertions.
class Rewriter {
 public:
  explicit Rewriter(const Graph& from) : from_(from), moved_(from.nodes.size(), kNoValue) {}
  /// Copies node v with its operands renumbered; returns its new number.
  ValueId keep(ValueId v);
  /// Adds a node whose operands are already numbers of the new graph.
  ValueId add(GraphNode node);
  ValueId moved(ValueId v) const { return moved_[v]; }
  /// Later uses of `v` read `to` instead (a number of the new graph).
  void redirect(ValueId v, ValueId to) { moved_[v] = to; }
  Graph& graph() { return to_; }

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> moved_;
};

}  // namespace fermata

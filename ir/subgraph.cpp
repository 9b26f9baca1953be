// See subgraph.h.
#include "ir/subgraph.h"

#include <utility>

#include "ir/graph.h"

namespace fermata {
namespace {

class Program final : public Subgraph {
 public:
  explicit Program(Graph graph) : graph_(std::move(graph)) {
    const auto type_of = [&](const GraphNode& n) { return TensorType{n.dtype, n.shape}; };
    for (const GraphNode& n : graph_.nodes)
      if (n.op == Op::input) arguments_.push_back(type_of(n));
    for (const ValueId v : graph_.outputs) results_.push_back(type_of(graph_.nodes[v]));
  }
  Graph graph() const override { return graph_; }

 private:
  Graph graph_;
};

}  // namespace

std::unique_ptr<const Subgraph> make_subgraph(Graph graph) { return std::make_unique<Program>(std::move(graph)); }

}  // namespace fermata

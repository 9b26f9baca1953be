// Every op of the table on sharded operands, compared with whole ones. A new op is covered without being listed.
#include <fermata/fermata.h>
#include <fermata/mesh.h>
#include <gtest/gtest.h>

#include "frontend/engine/graph_runner.h"
#include "passes/split_rules.h"
#include "tests/frontend/op_calls.h"
#include "tests/sharding/sharded_values.h"

namespace fermata {
namespace {

struct Case {
  Op op;
  OpCall call;
};

/// What the table says of each op, and calls of matrices and stacks of them with sizes that meshes divide.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (family(op) == Family::composite || op == Op::input) continue;
    if (is_pointwise(op) || family(op) == Family::reduce) {
      OpCall call = *test::good_call(op);
      call.shapes.assign(call.shapes.size(), Shape{4, 6});
      if (call.shapes.size() > 1) call.shapes.back() = Shape{6};
      all.push_back({op, call});
      if (family(op) != Family::reduce) continue;
      call.attributes = {2, 1};
      all.push_back({op, call});
      if (op != Op::argmax && op != Op::argmin) call.attributes = {3, 0}, all.push_back({op, call});
      continue;
    }
    if (const auto call = test::good_call(op)) {
      all.push_back({op, *call});
      // A longer axis in front of all that have one as long as the first, where the op takes it.
      OpCall longer = *call;
      for (Shape& shape : longer.shapes)
        for (std::int64_t& size : shape)
          if (size == 3) size = 6;
      for (std::int64_t& size : longer.shape)
        if (size == 3) size = 6;
      if (test::is_valid(op, longer)) all.push_back({op, longer});
    }
    if (traits(op).other_examples != nullptr)
      for (const OpCall& call : traits(op).other_examples()) all.push_back({op, call});
  }
  return all;
}

Graph graph_of(const Case& c) {
  Graph graph;
  GraphNode node;
  node.op = c.op;
  for (std::size_t k = 0; k < c.call.shapes.size(); ++k) {
    GraphNode input;
    input.dtype = c.call.dtypes[k], input.shape = c.call.shapes[k];
    graph.nodes.push_back(input);
    node.operands.push_back({static_cast<ValueId>(k), 0});
  }
  node.attributes = c.call.attributes, node.scalars = c.call.scalars;
  node.dtype = c.call.dtype, node.shape = c.call.shape;
  const TensorType type = test::result_type(c.op, c.call);
  node.dtype = type.dtype, node.shape = type.shape;
  graph.nodes.push_back(node);
  graph.outputs = {static_cast<ValueId>(graph.nodes.size() - 1)};
  return graph;
}

TEST(ShardedOps, AreThoseOfOneProcess) {
  const std::vector<Case> all = cases();
  std::vector<std::vector<Tensor>> operands;
  std::vector<Tensor> want;
  for (const Case& c : all) {
    operands.push_back(test::operands_of(c.op, c.call));
    want.push_back(run_graph(graph_of(c), operands.back())[0]);
  }
  sync(want);
  const std::vector<std::string> names{"data", "model"};
  for (const test::MeshCase& mesh_case : test::kMeshes)
    distributed::simulate(mesh_case.processes(), [&](int) {
      const Mesh mesh({{"data", mesh_case.rows}, {"model", mesh_case.columns}});
      std::mt19937_64 random(7);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Graph graph = graph_of(all[i]);
        for (int way = 0; way < 3; ++way) {
          std::vector<Tensor> divided;
          std::string how;
          for (const Tensor& t : operands[i]) {
            divided.push_back(shard(t, mesh, test::random_splits(t.shape(), mesh, names, random)));
            how += sharding_of(divided.back()) + " ";
          }
          const ModeGuard mode(way == 1 ? Mode::eager : Mode::compiled);
          const Tensor got = run_graph(graph, divided)[0].sync();
          ASSERT_EQ(test::difference(want[i], got), "")
              << mesh_case.rows << "x" << mesh_case.columns << " " << how << "\n"
              << to_string(graph);
        }
      }
    });
}

/// The ops that work on whole operands: what is added without a rule is added here as well, or gets one.
TEST(ShardedOps, WithoutARule) {
  std::string names;
  for (const Case& c : cases()) {
    const Graph graph = graph_of(c);
    const std::string name(fermata::name(c.op));
    if (!split_rule(graph, graph.nodes.back()) && names.find(name) == std::string::npos) names += name + " ";
  }
  EXPECT_EQ(names, "random_uniform random_normal update flatnonzero unpack pinv ");
}

}  // namespace
}  // namespace fermata

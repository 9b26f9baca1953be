// Every rule of a graph, broken once.
#include <gtest/gtest.h>

#include <functional>

#include "ir/error.h"
#include "ir/graph.h"

namespace fermata {
namespace {

constexpr std::string_view kGraph = R"(
%0 = input : f32[4, 8]
%1 = add(%0, 2) : f32[4, 8]
%2 = sum(%1) {axes=[1], keepdims=false} : f32[4]
%3 = full(1) : f32[4]
%4 = less(%2, %3) : bool[4]
%5 = where(%4, %2, 0) : f32[4]
return %5
)";

void expect_broken(const std::function<void(Graph&)>& change, const std::string& expected) {
  Graph graph = parse_graph(kGraph);
  change(graph);
  try {
    verify(graph);
    ADD_FAILURE() << "accepted; expected " << expected;
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.substr(0, text.find('\n')), "FM9001 InternalError: graph: " + expected);
  }
}

TEST(GraphVerify, AcceptsWhatKeepsTheRules) { EXPECT_NO_THROW(verify(parse_graph(kGraph))); }

TEST(GraphVerify, Operands) {
  expect_broken([](Graph& g) { g.nodes[1].operands[0].value = 1; }, "%1 (add): an operand does not precede it");
  expect_broken([](Graph& g) { g.nodes[1].operands.pop_back(); }, "%1 (add): wrong number of operands");
  expect_broken([](Graph& g) { g.nodes[1].scalars.clear(); }, "%1 (add): wrong number of scalars");
  expect_broken([](Graph& g) { g.nodes[1].operands[1].scalar = 1; }, "%1 (add): scalar operands out of order");
  expect_broken([](Graph& g) { g.nodes[2].operands[0] = {kNoValue, 0}; }, "%2 (sum): a scalar operand");
  expect_broken(
      [](Graph& g) {
        g.nodes[1].operands = {{kNoValue, 0}, {kNoValue, 1}};
        g.nodes[1].scalars = {0, 0};
      },
      "%1 (add): no tensor operand");
  expect_broken(
      [](Graph& g) {
        g.nodes[5].operands = {{kNoValue, 0}, {2, 0}, {2, 0}};
      },
      "%5 (where): a scalar condition");
  expect_broken([](Graph& g) { g.nodes[1].scalars[0] = 1ull << 32; }, "%1 (add): a scalar has bits beyond its dtype");
  expect_broken([](Graph& g) { g.nodes[3].scalars.clear(); }, "%3 (full): wrong number of scalars");
}

TEST(GraphVerify, AttributesAndLayout) {
  expect_broken([](Graph& g) { g.nodes[2].attributes.pop_back(); }, "%2 (sum): wrong number of attributes");
  expect_broken([](Graph& g) { g.nodes[1].attributes = {1}; }, "%1 (add): wrong number of attributes");
  expect_broken([](Graph& g) { g.nodes[2].attributes[1] = 2; }, "%2 (sum): a truth value that is neither 0 nor 1");
  expect_broken([](Graph& g) { g.nodes[1].dense = false; }, "%1 (add): only inputs have a layout");
  expect_broken([](Graph& g) { g.nodes[0].unit_axis = 0; }, "%0 (input): an axis of neighbors that cannot be one");
  expect_broken([](Graph& g) { g.nodes[0].dense = g.nodes[0].unit_inner = false, g.nodes[0].unit_axis = 7; },
                "%0 (input): an axis of neighbors that cannot be one");
}

TEST(GraphVerify, TypesAndOutputs) {
  expect_broken([](Graph& g) { g.nodes[2].shape = Shape{5}; }, "%2 (sum): is f32[5], should be f32[4]");
  expect_broken([](Graph& g) { g.nodes[4].dtype = DType::u8; }, "%4 (less): is u8[4], should be bool[4]");
  expect_broken([](Graph& g) { g.nodes[2].attributes[0] = 4; },
                "%2 (sum): FM1201 IndexError: sum: axis 2 is out of range for 2 axes");
  expect_broken([](Graph& g) { g.outputs.push_back(6); }, "output %6 does not exist");
}

}  // namespace
}  // namespace fermata

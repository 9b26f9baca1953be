// Graphs played as calls: values against the reference in both modes, and what does not fit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fermata/fermata.h"
#include "frontend/engine/graph_runner.h"
#include "ir/error.h"
#include "ir/graph.h"

namespace fermata {
namespace {

/// Plays in a mode and compares every output with the reference in double precision.
void expect_reference(const std::string& text, const std::vector<Tensor>& inputs) {
  const Graph graph = parse_graph(text);
  std::vector<ReferenceTensor> plain;
  for (const Tensor& x : inputs) {
    ReferenceTensor r{x.dtype(), x.shape(), {}, {}};
    if (is_floating(x.dtype()))
      r.floats = x.to_vector<double>();
    else
      r.integers = x.to_vector<std::int64_t>();
    plain.push_back(r);
  }
  const std::vector<ReferenceTensor> wanted = evaluate_reference(graph, plain);
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const std::vector<Tensor> outputs = run_graph(graph, inputs);
    ASSERT_EQ(outputs.size(), wanted.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      ASSERT_EQ(outputs[i].dtype(), wanted[i].dtype) << text;
      ASSERT_EQ(outputs[i].shape(), wanted[i].shape) << text;
      if (!is_floating(outputs[i].dtype())) {
        EXPECT_EQ(outputs[i].to_vector<std::int64_t>(), wanted[i].integers) << text;
        continue;
      }
      const std::vector<double> got = outputs[i].to_vector<double>();
      for (std::size_t j = 0; j < got.size(); ++j)
        EXPECT_NEAR(got[j], wanted[i].floats[j], 1e-5 * std::max(1.0, std::abs(wanted[i].floats[j]))) << text << j;
    }
  }
}

TEST(PlayGraph, ComputesPointwiseOpsWithNumbersOnEitherSide) {
  expect_reference(
      "%0 = input : f32[2, 3]\n"
      "%1 = subtract(1.5, %0) : f32[2, 3]\n"
      "%2 = maximum(%1, 0.25) : f32[2, 3]\n"
      "%3 = less(%0, 0) : bool[2, 3]\n"
      "%4 = where(%3, %2, -1) : f32[2, 3]\n"
      "return %4, %3\n",
      {tensor({{-1.0f, 2.0f, 0.5f}, {3.0f, -0.25f, 1.0f}})});
}

TEST(PlayGraph, KeepsDtypesOfIntegersAndNarrowFloats) {
  expect_reference(
      "%0 = input : u8[3]\n%1 = input : f16[3]\n"
      "%2 = add(%0, 250) : u8[3]\n"
      "%3 = multiply(%1, 0.5) : f16[3]\n"
      "%4 = cast(%2) : f16[3]\n"
      "%5 = add(%3, %4) : f16[3]\n"
      "return %2, %5\n",
      {tensor({3, 7, 9}, DType::u8), tensor({1.0, 2.0, -4.0}, DType::f16)});
}

TEST(PlayGraph, ComputesReductionsViewsAndGathers) {
  expect_reference(
      "%0 = input : f32[4, 3]\n%1 = input : i64[2]\n"
      "%2 = take(%0, %1) {axis=0} : f32[2, 3]\n"
      "%3 = permute(%2) {axes=[1, 0]} : f32[3, 2]\n"
      "%4 = sum(%3) {axes=[1], keepdims=true} : f32[3, 1]\n"
      "%5 = broadcast_to(%4) : f32[3, 2]\n"
      "%6 = concat(%5, %3) {axis=0} : f32[6, 2]\n"
      "%7 = argmax(%6) {axes=[0], keepdims=false} : i64[2]\n"
      "%8 = matmul(%2, %3) : f32[2, 2]\n"
      "%9 = slice(%6) {start=[4, 1], step=[-2, -1]} : f32[3, 2]\n"
      "return %6, %7, %8, %9\n",
      {reshape(arange(12.0) * 0.25, {4, 3}), tensor({3, 1})});
}

TEST(PlayGraph, CallsFunctionsThatNodesOwn) {
  expect_reference(
      "%0 = input : f32[3, 2]\n%1 = input : f32[2]\n%2 = input : bool[]\n%3 = input : f64[]\n"
      "%4 = scan(%1, %0, %1) {seeded=false, carries=1, sequences=1, length=3, reverse=true} : u8[128]\n"
      "  body:\n"
      "    %0 = input : f32[2]\n    %1 = input : f32[2]\n    %2 = input : f32[2]\n"
      "    %3 = multiply(%0, %2) : f32[2]\n"
      "    %4 = add(%3, %1) : f32[2]\n"
      "    return %4, %3\n"
      "%5 = unpack(%4) {offset=0} : f32[2]\n"
      "%6 = unpack(%4) {offset=64} : f32[3, 2]\n"
      "%7 = cond(%2, %3, %5) {seeded=true} : f32[2]\n"
      "  when_true:\n"
      "    %0 = input : f32[2]\n"
      "    %1 = random_uniform(7640891576956012808, 4) : f32[2]\n"
      "    %2 = add(%0, %1) : f32[2]\n"
      "    return %2\n"
      "  when_false:\n"
      "    %0 = input : f32[2]\n"
      "    return %0\n"
      "%8 = while_loop(%3, %7) {seeded=true} : f32[2]\n"
      "  condition:\n"
      "    %0 = input : f32[2]\n"
      "    %1 = less(%0, 50) : bool[2]\n"
      "    %2 = any(%1) {axes=[0], keepdims=false} : bool[]\n"
      "    return %2\n"
      "  body:\n"
      "    %0 = input : f32[2]\n"
      "    %1 = random_uniform(7640891576956012808, 0) : f32[2]\n"
      "    %2 = add(%1, 1) : f32[2]\n"
      "    %3 = multiply(%0, %2) : f32[2]\n"
      "    return %3\n"
      "return %5, %6, %7, %8\n",
      {reshape(arange(6.0), {3, 2}), tensor({1.5f, 2.0f}), full({}, true), full({}, 0.25, DType::f64)});
}

TEST(PlayGraph, TakesOneTensorPerInput) {
  const Graph graph = parse_graph("%0 = input : f32[2]\n%1 = exp(%0) : f32[2]\nreturn %1\n");
  const auto text = [&](const std::vector<Tensor>& inputs) -> std::string {
    try {
      run_graph(graph, inputs, {});
    } catch (const ValueError& error) { return error.what(); }
    return "no error";
  };
  EXPECT_EQ(text({}), "FM1331 ValueError: a graph with 1 inputs was given 0");
  EXPECT_EQ(text({ones(2), ones(2)}), "FM1331 ValueError: a graph with 1 inputs was given 2");
  EXPECT_EQ(text({ones(3)}),
            "FM1330 ValueError: input 0 does not match the graph\n"
            "  graph f32[2]   %0\n"
            "  given f32[3]");
  EXPECT_EQ(text({Tensor()}),
            "FM1330 ValueError: input 0 does not match the graph\n"
            "  graph f32[2]   %0\n"
            "  given undefined");
}

}  // namespace
}  // namespace fermata

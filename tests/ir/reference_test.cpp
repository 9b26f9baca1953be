// The reference evaluation against values worked out by hand or with the C++ library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <bit>
#include <cmath>
#include <functional>

#include "ir/error.h"
#include "ir/graph.h"
#include "random_graph.h"
#include "seed.h"

namespace fermata {
namespace {

using Floats = std::vector<double>;
using Integers = std::vector<std::int64_t>;
using ::testing::Pointwise;

ReferenceTensor floats(const Shape& shape, Floats values, DType dtype = DType::f32) {
  return {dtype, shape, std::move(values), {}};
}
ReferenceTensor integers(const Shape& shape, Integers values, DType dtype = DType::i64) {
  return {dtype, shape, {}, std::move(values)};
}
/// The only output of a graph.
ReferenceTensor run(std::string_view text, const std::vector<ReferenceTensor>& inputs = {}) {
  return evaluate_reference(parse_graph(text), inputs).at(0);
}

TEST(Reference, PointwiseBroadcastsAndTakesScalars) {
  const auto y = run(R"(
    %0 = input : f32[2, 1]
    %1 = input : f32[3]
    %2 = multiply(%0, %1) : f32[2, 3]
    %3 = subtract(%2, 0.5) : f32[2, 3]
    return %3)",
                     {floats({2, 1}, {1, 2}), floats({3}, {1, 10, 100})});
  EXPECT_EQ(y.floats, (Floats{0.5, 9.5, 99.5, 1.5, 19.5, 199.5}));
}

TEST(Reference, FloatsAreComputedInDoubleWhateverTheirDtype) {
  const auto y = run("%0 = input : f16[1]\n%1 = add(%0, 1) : f16[1]\n%2 = exp(%1) : f16[1]\nreturn %2",
                     {floats({1}, {1e-9}, DType::f16)});
  EXPECT_NEAR(y.floats[0], std::exp(1 + 1e-9), 1e-15);
}

TEST(Reference, IntegersWrapAtTheirWidth) {
  const auto y =
      run("%0 = input : i8[3]\n%1 = add(%0, 100) : i8[3]\nreturn %1", {integers({3}, {100, -1, 27}, DType::i8)});
  EXPECT_EQ(y.integers, (Integers{-56, 99, 127}));
  const auto z = run("%0 = input : u64[1]\n%1 = divide(%0, 2) : f32[1]\nreturn %1", {integers({1}, {-2}, DType::u64)});
  EXPECT_EQ(z.floats, Floats{0x1p63});
}

TEST(Reference, TruthAndChoice) {
  const auto y = run(R"(
    %0 = input : f32[4]
    %1 = logical_not(%0) : bool[4]
    %2 = where(%1, 7, %0) : f32[4]
    return %2)",
                     {floats({4}, {0, -0.0, 0.25, NAN})});
  EXPECT_EQ((Floats{y.floats[0], y.floats[1], y.floats[2]}), (Floats{7, 7, 0.25}));
  EXPECT_TRUE(std::isnan(y.floats[3]));
  const auto chosen =
      run("%0 = input : i32[2]\n%1 = where(%0, 1, -1) : i8[2]\nreturn %1", {integers({2}, {256, 0}, DType::i32)});
  EXPECT_EQ(chosen.integers, (Integers{1, -1}));
}

TEST(Reference, Reductions) {
  const std::vector<ReferenceTensor> x{floats({2, 3}, {1, 5, 2, 4, 4, -3})};
  const auto reduced = [&](const std::string& call) {
    return run("%0 = input : f32[2, 3]\n%1 = " + call + "\nreturn %1", x);
  };
  EXPECT_EQ(reduced("sum(%0) {axes=[1], keepdims=false} : f32[2]").floats, (Floats{8, 5}));
  EXPECT_EQ(reduced("sum(%0) {axes=[0], keepdims=true} : f32[1, 3]").floats, (Floats{5, 9, -1}));
  EXPECT_EQ(reduced("prod(%0) {axes=[0, 1], keepdims=false} : f32[]").floats, Floats{-480});
  EXPECT_EQ(reduced("max(%0) {axes=[0], keepdims=false} : f32[3]").floats, (Floats{4, 5, 2}));
  EXPECT_EQ(reduced("argmax(%0) {axes=[1], keepdims=false} : i64[2]").integers, (Integers{1, 0}));
  EXPECT_EQ(reduced("argmin(%0) {axes=[0, 1], keepdims=false} : i64[]").integers, Integers{5});
  EXPECT_EQ(reduced("any(%0) {axes=[0], keepdims=false} : bool[3]").integers, (Integers{1, 1, 1}));
  EXPECT_EQ(reduced("sum(%0) {axes=[], keepdims=false} : f32[2, 3]").floats, x[0].floats);
  const auto count = run("%0 = input : bool[3]\n%1 = sum(%0) {axes=[0], keepdims=false} : i64[]\nreturn %1",
                         {integers({3}, {1, 0, 1}, DType::boolean)});
  EXPECT_EQ(count.integers, Integers{2});
}

TEST(Reference, SumsAreWide) {
  Floats values(10001, 0x1p-53);
  values[0] = 1;
  const auto y = run("%0 = input : f64[10001]\n%1 = sum(%0) {axes=[0], keepdims=false} : f64[]\nreturn %1",
                     {floats({10001}, values, DType::f64)});
  EXPECT_EQ(y.floats[0], 1 + 10000 * 0x1p-53);
}

TEST(Reference, EmptyReductions) {
  const auto y =
      run("%0 = input : f32[0, 2]\n%1 = prod(%0) {axes=[0], keepdims=false} : f32[2]\nreturn %1", {floats({0, 2}, {})});
  EXPECT_EQ(y.floats, (Floats{1, 1}));
}

TEST(Reference, Views) {
  const std::vector<ReferenceTensor> x{integers({2, 3}, {0, 1, 2, 3, 4, 5})};
  const auto viewed = [&](const std::string& call) {
    return run("%0 = input : i64[2, 3]\n%1 = " + call + "\nreturn %1", x).integers;
  };
  EXPECT_EQ(viewed("reshape(%0) : i64[3, 2]"), x[0].integers);
  EXPECT_EQ(viewed("copy(%0) : i64[2, 3]"), x[0].integers);
  EXPECT_EQ(viewed("expand_dims(%0) {axes=[0, 3]} : i64[1, 2, 3, 1]"), x[0].integers);
  EXPECT_EQ(viewed("permute(%0) {axes=[1, 0]} : i64[3, 2]"), (Integers{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(viewed("slice(%0) {start=[1, 2], step=[-1, -2]} : i64[2, 2]"), (Integers{5, 3, 2, 0}));
  EXPECT_EQ(viewed("broadcast_to(%0) : i64[2, 2, 3]"), (Integers{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
}

TEST(Reference, ConcatTakeAndScatter) {
  const std::vector<ReferenceTensor> x{integers({2, 2}, {1, 2, 3, 4}), integers({2, 1}, {5, 6}),
                                       integers({3}, {1, -1, -2})};
  const auto result = [&](const std::string& call) {
    return run("%0 = input : i64[2, 2]\n%1 = input : i64[2, 1]\n%2 = input : i64[3]\n%3 = " + call + "\nreturn %3", x)
        .integers;
  };
  EXPECT_EQ(result("concat(%0, %1, %0) {axis=1} : i64[2, 5]"), (Integers{1, 2, 5, 1, 2, 3, 4, 6, 3, 4}));
  EXPECT_EQ(result("take(%0, %2) {axis=0} : i64[3, 2]"), (Integers{3, 4, 3, 4, 1, 2}));
  EXPECT_EQ(result("take(%0, %2) {axis=1} : i64[2, 3]"), (Integers{2, 2, 1, 4, 4, 3}));
  EXPECT_EQ(result("update(%0, %1) {offset=3, strides=[-2, 1]} : i64[2, 2]"), (Integers{1, 6, 3, 5}));
  const auto added =
      run("%0 = input : i8[2]\n%1 = input : i64[3]\n%2 = input : i8[3]\n"
          "%3 = index_add(%0, %1, %2) {axis=0} : i8[2]\nreturn %3",
          {integers({2}, {100, 1}, DType::i8), integers({3}, {0, 1, 0}), integers({3}, {20, 2, 20}, DType::i8)});
  EXPECT_EQ(added.integers, (Integers{-116, 3})) << "sums at both positions, wrapped";
}

TEST(Reference, GatherAndScatter) {
  const std::vector<ReferenceTensor> x{integers({2, 3}, {1, 2, 3, 4, 5, 6}), integers({2, 2}, {2, 2, 0, -2}),
                                       integers({2, 2}, {10, 20, 0, 3})};
  const auto result = [&](const std::string& call) {
    return run("%0 = input : i64[2, 3]\n%1 = input : i64[2, 2]\n%2 = input : i64[2, 2]\n%3 = " + call + "\nreturn %3",
               x)
        .integers;
  };
  EXPECT_EQ(result("gather(%0, %1) {axis=1} : i64[2, 2]"), (Integers{3, 3, 4, 5}));
  EXPECT_EQ(result("scatter(%0, %1, %2) {axis=1} : i64[2, 3]"), (Integers{1, 2, 20, 0, 3, 6}));
  EXPECT_EQ(result("scatter_add(%0, %1, %2) {axis=1} : i64[2, 3]"), (Integers{1, 2, 33, 4, 8, 6}));
  EXPECT_EQ(result("scatter_multiply(%0, %1, %2) {axis=1} : i64[2, 3]"), (Integers{1, 2, 600, 0, 15, 6}));
  EXPECT_EQ(result("scatter_maximum(%0, %1, %2) {axis=1} : i64[2, 3]"), (Integers{1, 2, 20, 4, 5, 6}));
  EXPECT_EQ(result("scatter_minimum(%0, %1, %2) {axis=1} : i64[2, 3]"), (Integers{1, 2, 3, 0, 3, 6}));
}

TEST(Reference, WindowsAndConvolutions) {
  const auto result = [](const std::string& call, const Shape& a, const Floats& x, const Shape& b, const Floats& y) {
    const std::string inputs =
        "%0 = input : " + to_string(DType::f32, a) + "\n%1 = input : " + to_string(DType::f32, b);
    return run(inputs + "\n%2 = " + call + "\nreturn %2", {floats(a, x), floats(b, y)}).floats;
  };
  const Floats line{1, 2, 3, 4, 5};
  EXPECT_EQ(result("unfold(%0) {axis=0, size=2, step=2, dilation=2} : f32[2, 2]", {5}, line, {1}, {0}),
            (Floats{1, 3, 3, 5}));
  EXPECT_EQ(result("fold(%0) {axis=0, step=2, dilation=2} : f32[5]", {2, 2}, {1, 2, 3, 4}, {1}, {0}),
            (Floats{1, 0, 5, 0, 4}));
  const std::string arguments = " {groups=1, strides=[2], padding=[1], padding_end=[0], dilation=[1]} : ";
  // Windows 0 1 2, 2 3 4 and so on: the first element is padding.
  EXPECT_EQ(result("convolution(%0, %1)" + arguments + "f32[1, 1, 2]", {1, 1, 5}, line, {1, 1, 3}, {1, 10, 100}),
            (Floats{210, 432}));
  EXPECT_EQ(result("convolution_data_gradient(%0, %1)" + arguments + "f32[1, 1, 5]", {1, 1, 2}, {1, 2}, {1, 1, 3},
                   {1, 10, 100}),
            (Floats{10, 102, 20, 200, 0}));
  EXPECT_EQ(
      result("convolution_weight_gradient(%0, %1)" + arguments + "f32[1, 1, 3]", {1, 1, 5}, line, {1, 1, 2}, {1, 2}),
      (Floats{4, 7, 10}));
}

TEST(Reference, PositionsOutOfRangeAreAnError) {
  try {
    run("%0 = input : f32[4]\n%1 = input : i64[1]\n%2 = take(%0, %1) {axis=0} : f32[1]\nreturn %2",
        {floats({4}, {1, 2, 3, 4}), integers({1}, {-5})});
    FAIL();
  } catch (const IndexError& error) {
    EXPECT_STREQ(error.what(), "FM1204 IndexError: take: position -5 is out of range for 4 elements");
  }
}

TEST(Reference, CastsFromDouble) {
  const auto y = run("%0 = input : f32[4]\n%1 = cast(%0) : u8[4]\nreturn %1", {floats({4}, {2.9, -3, 300, NAN})});
  EXPECT_EQ(y.integers, (Integers{2, 0, 255, 0}));
  const auto z = run("%0 = input : i64[2]\n%1 = cast(%0) : bool[2]\nreturn %1", {integers({2}, {256, 0})});
  EXPECT_EQ(z.integers, (Integers{1, 0}));
}

TEST(Reference, Matmul) {
  const ReferenceTensor a = floats({2, 3}, {1, 2, 3, 4, 5, 6}), b = floats({3, 2}, {7, 8, 9, 10, 11, 12});
  EXPECT_EQ(
      run("%0 = input : f32[2, 3]\n%1 = input : f32[3, 2]\n%2 = matmul(%0, %1) : f32[2, 2]\nreturn %2", {a, b}).floats,
      (Floats{58, 64, 139, 154}));
  const ReferenceTensor v = floats({3}, {1, 0, -1});
  EXPECT_EQ(run("%0 = input : f32[2, 3]\n%1 = input : f32[3]\n%2 = matmul(%0, %1) : f32[2]\nreturn %2", {a, v}).floats,
            (Floats{-2, -2}));
  EXPECT_EQ(run("%0 = input : f32[3]\n%1 = input : f32[3, 2]\n%2 = matmul(%0, %1) : f32[2]\nreturn %2", {v, b}).floats,
            (Floats{-4, -4}));
  EXPECT_EQ(run("%0 = input : f32[3]\n%1 = matmul(%0, %0) : f32[]\nreturn %1", {v}).floats, Floats{2});
  const auto wrapped =
      run("%0 = input : u8[1, 2]\n%1 = input : u8[3, 2, 1]\n%2 = matmul(%0, %1) : u8[3, 1, 1]\nreturn %2",
          {integers({1, 2}, {16, 1}, DType::u8), integers({3, 2, 1}, {16, 5, 1, 1, 0, 9}, DType::u8)});
  EXPECT_EQ(wrapped.integers, (Integers{5, 17, 9}));
}

TEST(Reference, MakersAndRandom) {
  EXPECT_EQ(run("%0 = full(2.5) : f16[2]\nreturn %0").floats, (Floats{2.5, 2.5}));
  EXPECT_EQ(run("%0 = iota {axis=0} : i64[2, 2]\nreturn %0").integers, (Integers{0, 0, 1, 1}));
  const auto u = run("%0 = random_uniform(3, 0) : f32[1000]\nreturn %0").floats;
  const auto shifted = run("%0 = random_uniform(3, 0) : f64[1000]\nreturn %0").floats;
  double total = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    ASSERT_GE(u[i], 0);
    ASSERT_LT(u[i], 1);
    ASSERT_EQ(u[i], std::floor(u[i] * 0x1p24) * 0x1p-24) << "24 bits for f32";
    total += u[i];
  }
  EXPECT_NEAR(total / 1000, 0.5, 0.05);
  EXPECT_NE(u, shifted);
}

TEST(Reference, ChecksItsInputs) {
  EXPECT_THROW(run("%0 = input : f32[2]\nreturn %0"), InternalError);
  EXPECT_THROW(run("%0 = input : f32[2]\nreturn %0", {floats({3}, {1, 2, 3})}), InternalError);
}

class ReferenceProperty : public testing::SeededTest {};

bool has_no_reference(Op op) {
  return family(op) == Family::irregular && op != Op::input && traits(op).reference == nullptr;
}

/// Any graph that verifies can be evaluated (index ops aside, whose positions are data, and ops that the reference says
/// it does not have), and gives the types it says.
TEST_F(ReferenceProperty, EveryGraphEvaluates) {
  int evaluated = 0;
  for (int round = 0; round < 400; ++round) {
    const Graph graph = testing::RandomGraph(random_).make(static_cast<std::size_t>(between(1, 25)));
    if (std::ranges::any_of(graph.nodes, [](const GraphNode& n) { return has_no_reference(n.op); })) continue;
    std::vector<ReferenceTensor> inputs;
    for (const GraphNode& node : graph.nodes) {
      if (node.op != Op::input) continue;
      ReferenceTensor tensor{node.dtype, node.shape, {}, {}};
      for (std::int64_t i = 0; i < element_count(node.shape); ++i)
        if (is_complex(node.dtype))
          tensor.complexes.emplace_back(static_cast<double>(between(-20, 20)) / 4,
                                        static_cast<double>(between(-20, 20)) / 4);
        else if (is_floating(node.dtype))
          tensor.floats.push_back(static_cast<double>(between(-20, 20)) / 4);
        else
          tensor.integers.push_back(between(0, 1));
      inputs.push_back(std::move(tensor));
    }
    std::vector<ReferenceTensor> outputs;
    try {
      outputs = evaluate_reference(graph, inputs);
    } catch (const UserError&) { continue; }  // a position out of range, a matrix that has no such factor
    ++evaluated;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const GraphNode& node = graph.nodes[graph.outputs[i]];
      ASSERT_EQ(outputs[i].dtype, node.dtype);
      ASSERT_EQ(outputs[i].shape, node.shape);
      ASSERT_EQ(outputs[i].floats.size() + outputs[i].integers.size() + outputs[i].complexes.size(),
                static_cast<std::size_t>(element_count(node.shape)));
    }
  }
  EXPECT_GT(evaluated, 150);
}

TEST(Reference, SaysThatItHasNoMemory) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the program
  EXPECT_THROW(run("%0 = full(1) : f32[288230376151711744]\n"
                   "%1 = sum(%0) {axes=[0], keepdims=false} : f32[]\n"
                   "return %1\n"),
               OutOfMemoryError);
#endif
}

}  // namespace
}  // namespace fermata

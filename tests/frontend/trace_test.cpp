// Tracing: programs that compute what the call did, bit for bit and for other arguments; what becomes of everything
// that is not an argument; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "frontend/engine/graph_runner.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Kind = TracedOutput::Kind;

class Tracing : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Tracing, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Tensor matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed = 1) {
  return astype(random_f64({rows, columns}, 0.1, 1, true, seed), DType::f32).sync();
}
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

void expect_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].dtype(), wanted[i].dtype()) << i;
    ASSERT_EQ(got[i].shape(), wanted[i].shape()) << i;
    const std::vector<double> a = values(got[i]), b = values(wanted[i]);
    for (std::size_t j = 0; j < a.size(); ++j)
      ASSERT_EQ(std::bit_cast<std::uint64_t>(a[j]), std::bit_cast<std::uint64_t>(b[j])) << i << ", " << j;
  }
}

/// Traces, takes the program through its text, and compares what it computes with the traced call and, for other
/// arguments, with a direct one. Both modes play it.
template <class F> Trace round_trip(F fn, const std::vector<Tensor>& arguments, const std::vector<Tensor>& others) {
  const auto spread = [&fn](const std::vector<Tensor>& xs) -> std::vector<Tensor> { return fn(xs); };
  Trace traced = trace(spread, arguments);
  Trace read = traced;
  read.graph = parse_graph(to_string(traced));
  EXPECT_EQ(to_string(read.graph), to_string(traced.graph));
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    expect_equal(run_trace(read, traced.arguments), traced.results);
    expect_equal(run_trace(read, others), spread(others));
  }
  return traced;
}

TEST_P(Tracing, TheTextNamesEverything) {
  const Tensor x = matrix(2, 3), w = matrix(3, 2, 2);
  const Trace t = trace([&](const Tensor& a) { return sum(matmul(a, w) * 2, 0); }, x);
  EXPECT_EQ(to_string(t.graph),
            "%0 = input : f32[2, 3]\n"
            "%1 = input : f32[3, 2]\n"
            "%2 = matmul(%0, %1) : f32[2, 2]\n"
            "%3 = multiply(%2, 2) : f32[2, 2]\n"
            "%4 = sum(%3) {axes=[0], keepdims=false} : f32[2]\n"
            "return %4\n");
  EXPECT_THAT(to_string(t), HasSubstr("// %0: argument 0\n// %1: constant 0\n// %4: result 0\n%0 = input"));
  EXPECT_THAT(to_string(t), HasSubstr("@frontend/trace_test.cpp:"));
  ASSERT_THAT(t.constants, SizeIs(1));
  EXPECT_EQ(t.constants[0].node, 1u);
  expect_equal({t.constants[0].value}, {w});
  expect_equal(t.results, {sum(matmul(x, w) * 2, 0)});
}

std::vector<Tensor> mlp_step(const std::vector<Tensor>& a) {
  const Tensor x = a[0];
  std::vector<Tensor> weights;
  for (std::size_t i = 1; i < 4; ++i) weights.push_back(copy(a[i]).requires_grad(true));
  const Tensor hidden = gelu(linear(x, weights[0], weights[1]));
  const Tensor loss = cross_entropy(linear(layer_norm(hidden), weights[2]), a[4]);
  std::vector<Tensor> results = gradients(loss, weights);
  results.push_back(loss.detach());
  return results;
}
std::vector<Tensor> mlp_arguments(std::uint64_t seed) {
  return {matrix(4, 6, seed), matrix(8, 6, seed + 1), reshape(matrix(1, 8, seed + 2), {8}).sync(),
          matrix(3, 8, seed + 3), tensor({0, 2, 1, static_cast<int>(seed % 3)})};
}

TEST_P(Tracing, AnMlpWithItsGradient) {
  const Trace t = round_trip(&mlp_step, mlp_arguments(1), mlp_arguments(20));
  EXPECT_THAT(t.constants, IsEmpty());
  EXPECT_THAT(t.frozen, IsEmpty());
  EXPECT_THAT(to_string(t.graph), Not(HasSubstr("linear")));  // composites are recorded as their parts
}

TEST_P(Tracing, BackwardThroughALeaf) {
  const auto fn = [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
    const Tensor w = copy(a[0]).requires_grad(true);
    sum(square(w) * 3).backward();
    sum(exp(w)).backward();  // adds to the first
    return {w.grad()};
  };
  round_trip(fn, {matrix(3, 3)}, {matrix(3, 3, 7)});
}

TEST_P(Tracing, ReductionsAndComposites) {
  const auto fn = [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
    return {softmax(a[0], 0), logsumexp(a[0], {1}), var(a[0]),          mean(a[0], {0}, true), max(a[0], 1),
            argmax(a[0], 1),  prod(a[0], 0),        any(a[0] > 0.5, 1), rms_norm(a[0])};
  };
  round_trip(fn, {matrix(5, 7)}, {matrix(5, 7, 9)});
}

TEST_P(Tracing, Views) {
  const auto fn = [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
    const Tensor x = a[0];
    return {x.mT() + 1,
            x.slice(1, 4, kNone, -2),
            flip(x, {0}),
            expand_dims(x[1], 0) * x,
            broadcast_to(x[0], {3, 6}),
            reshape(x.mT(), {3, 8}),
            concat({x, x.slice(0, 0, 2)}),
            take(x, tensor({2, 0})),
            squeeze(x.slice(0, 1, 2))};
  };
  round_trip(fn, {matrix(4, 6)}, {matrix(4, 6, 5)});
}

TEST_P(Tracing, WritesInsideAreUpdates) {
  const auto fn = [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
    Tensor y = copy(a[0]);
    Tensor row = y[1];
    row += 10;                      // seen by y
    y *= 2;                         // seen by row
    y.slice(1, 0, 2).assign(a[1]);  // an update through a view
    Tensor total = zeros({});
    for (int i = 0; i < 3; ++i) total += sum(y[i]);
    return {y, row + 0, total};
  };
  const Trace t = round_trip(fn, {matrix(4, 6), matrix(4, 2, 2)}, {matrix(4, 6, 3), matrix(4, 2, 4)});
  EXPECT_THAT(to_string(t.graph), HasSubstr("update("));
  EXPECT_THAT(t.outputs, SizeIs(3));
}

TEST_P(Tracing, DTypesAndHostNumbers) {
  const auto fn = [](const std::vector<Tensor>& a) -> std::vector<Tensor> {
    const Tensor b = astype(a[0], DType::bf16), i = astype(a[0] * 100, DType::i32);
    return {b + a[0],
            1.5 - b,
            i / 3,
            where(a[0] > 0, a[0], 0),
            where(a[0] > 0, 1.0f, 2.0f),
            i + true,
            astype(i, DType::u8) << 2,
            pow(a[0], 2),
            isnan(a[0] / 0),
            a[0] * INFINITY,
            full({2}, -0.0),
            arange(5)};
  };
  round_trip(fn, {matrix(3, 4)}, {matrix(3, 4, 8)});
}

TEST_P(Tracing, NegativeHostNumbersOfEveryWidth) {
  std::vector<Tensor> arguments;
  for (const DType t : {DType::i8, DType::i16, DType::i32, DType::i64})
    arguments.push_back(astype(arange(3), t).sync());
  round_trip(
      [](const std::vector<Tensor>& xs) {
        std::vector<Tensor> out;
        for (const Tensor& x : xs) out.push_back(maximum(x - 4, -2) + full({}, -3, x.dtype()));
        return out;
      },
      arguments, arguments);
}

TEST_P(Tracing, RandomNumbersArePartOfTheProgram) {
  manual_seed(5);
  const Trace t = trace([](const Tensor& x) { return x + rand({3}) + randn({3}); }, zeros({3}));
  EXPECT_THAT(to_string(t.graph), HasSubstr("random_uniform(5, "));
  manual_seed(6);
  expect_equal(run_trace(t, t.arguments), t.results);
  expect_equal(run_trace(t, t.arguments), t.results);
}

TEST_P(Tracing, ArgumentsThatAreWrittenBecomeOutputs) {
  Tensor w = copy(matrix(2, 2)), x = matrix(2, 2, 3);
  const std::vector<double> before = values(w);
  const Trace t = trace(
      [](Tensor a, const Tensor& b) {
        a -= 0.5 * b;
        return sum(a);
      },
      w, x);
  ASSERT_THAT(t.outputs, SizeIs(2));
  EXPECT_EQ(t.outputs[0].kind, Kind::result);
  EXPECT_EQ(t.outputs[1].kind, Kind::argument);
  EXPECT_EQ(t.outputs[1].index, 0u);
  EXPECT_EQ(values(t.arguments[0]), before);
  expect_equal(run_trace(t, t.arguments), {t.results[0], w});  // the call has written w as any call does
  EXPECT_THAT(to_string(t), HasSubstr(": the final value of argument 0\n"));
}

TEST_P(Tracing, TensorsFromOutsideThatAreWrittenBecomeOutputs) {
  Tensor state = copy(matrix(2, 2)), fresh = copy(matrix(2, 2)), count = full({}, 3.0);
  const std::vector<double> before = values(state);
  const Trace t = trace(
      [&](const Tensor& x) {
        state[0] += x[0];
        fresh.assign(x);
        count += 1;
        Tensor own = tensor({1.0f, 2.0f});  // a constant of the function's own, gone at the end
        own += x[1];
        return own * 1;
      },
      matrix(2, 2, 4));
  ASSERT_THAT(t.outputs, SizeIs(4));
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(t.outputs[i].kind, Kind::outside);
  EXPECT_EQ(t.outputs[1].index, 0u);
  EXPECT_EQ(t.outputs[2].index, TracedOutput::kNoConstant);
  expect_equal(run_trace(t, t.arguments), {t.results[0], state, fresh, count});
  EXPECT_EQ(values(t.constants[0].value), before);
}

TEST_P(Tracing, NumbersFromOutsideAreFull) {
  const Tensor scale = tensor(0.3f), steps = full({}, 7, DType::i64), flag = tensor(true),
               narrow = full({}, 1.25, DType::bf16);
  const Trace t = trace([&](const Tensor& x) { return where(flag, x * scale, x) + steps + narrow; }, matrix(2, 2));
  EXPECT_THAT(t.constants, IsEmpty());
  EXPECT_THAT(to_string(t.graph), HasSubstr("full(0.3) : f32[]"));
  EXPECT_THAT(to_string(t.graph), HasSubstr("full(7) : i64[]"));
  EXPECT_THAT(t.frozen, IsEmpty());
  expect_equal(run_trace(t, t.arguments), t.results);
}

TEST_P(Tracing, ControlFlowIsFixedAndSaysSo) {
  const auto fn = [](const Tensor& x) { return sum(x).item<float>() > 0 ? x * 2 : x * 3; };
  const Trace t = trace(fn, ones({2}));
  ASSERT_THAT(t.frozen, SizeIs(1));
  EXPECT_THAT(t.frozen[0], HasSubstr("item at frontend/trace_test.cpp:"));
  EXPECT_THAT(to_string(t), HasSubstr("// frozen: item at "));
  const Tensor negative_ones = full({2}, -1.0f);
  EXPECT_THAT(values(run_trace(t, std::vector{negative_ones})[0]), ElementsAre(-2, -2));
  EXPECT_THAT(trace([](const Tensor& x) { return x * tensor({2.0f}).item<float>(); }, ones({2})).frozen, IsEmpty());
}

TEST_P(Tracing, ArgumentsAndResultsOfManyKinds) {
  const Tensor x = matrix(2, 2);
  const std::vector<Tensor> list{matrix(2, 2, 2), matrix(2, 2, 3)};
  const Trace t =
      trace([](const std::vector<Tensor>& xs, double s, const Tensor& y) { return std::pair(xs[0] * s, xs[1] - y); },
            list, 2.5, x);
  EXPECT_THAT(t.arguments, SizeIs(3));
  EXPECT_THAT(t.results, SizeIs(2));
  expect_equal(run_trace(t, t.arguments), {list[0] * 2.5, list[1] - x});
  const Trace handed_back = trace([&](const Tensor& a) { return std::vector{a, x, a}; }, list[0]);
  expect_equal(run_trace(handed_back, std::vector{list[1]}), {list[1], x, list[1]});
  Tensor written = copy(x);
  const Trace none = trace([&](const Tensor& a) { written += a; }, list[0]);
  expect_equal(run_trace(none, none.arguments), {written});
}

TEST_P(Tracing, OnlyWhatTheOutputsNeedIsKept) {
  const Tensor w = matrix(2, 2, 3);
  const Trace t = trace(
      [&](const Tensor& x, const Tensor&) {
        exp(x) * w;
        return x + 1;
      },
      matrix(2, 2), matrix(2, 2, 2));
  EXPECT_EQ(to_string(t.graph),
            "%0 = input : f32[2, 2]\n%1 = input : f32[2, 2]\n%2 = add(%0, 1) : f32[2, 2]\nreturn %2\n");
  EXPECT_THAT(t.constants, IsEmpty());
}

TEST_P(Tracing, AWriteBehindAnAddressIsSeen) {
  Tensor state = copy(matrix(2, 2));
  const float* address = state.data<float>();
  const Trace t = trace(
      [&](const Tensor& x) {
        state += x;
        return state * 2;
      },
      matrix(2, 2, 2));
  EXPECT_EQ(address, state.data<float>());
  expect_equal(run_trace(t, t.arguments), {t.results[0], state});
}

TEST_P(Tracing, CompiledFunctionsAndAutocastRegionsAreSeenThrough) {
  auto f = compile([](const Tensor& a) { return matmul(a, a) + 1; });
  const Tensor x = matrix(4, 4);
  f(x);
  const Trace t = trace(
      [&](const Tensor& a) {
        const AutocastGuard region;
        return softmax(f(a) * 2);
      },
      x);
  EXPECT_THAT(t.constants, IsEmpty());
  EXPECT_THAT(to_string(t.graph), HasSubstr("cast(%0) : bf16[4, 4]"));
  expect_equal(run_trace(t, t.arguments), t.results);
}

/// Full text of an error; "at" names `line` if that is not 0.
template <class E, class F> void expect_error(const std::string& before, int line, const std::string& after, F&& call) {
  const std::string at = line == 0 ? "" : "\n  at   frontend/trace_test.cpp:" + std::to_string(line);
  try {
    call();
    FAIL() << "no error";
  } catch (const E& error) { EXPECT_EQ(error.what(), before + at + after); }
  EXPECT_EQ(trace([](const Tensor& a) { return a + 1; }, ones({2})).graph.nodes.size(), 2u);  // still works
}

TEST_P(Tracing, Refusals) {
  const Tensor x = matrix(2, 2);
  expect_error<ValueError>("FM1340 ValueError: trace: arguments 0 and 1 are the same value\n  x    f32[2, 2]", 0,
                           "\n  hint copy() one of them",
                           [&] { trace([](const Tensor& a, const Tensor& b) { return a + b; }, x, x); });
  int line = 0;
  expect_error<UnsupportedError>(
      "FM2710 UnsupportedError: data: a trace does not see writes through a pointer\n  x    f32[2, 2]",
      line = __LINE__ + 1, "\n  hint read elements with to_vector(), write them with assign()",
      [&] { trace([](const Tensor& a) { a.data<float>(); }, x); });
  expect_error<UnsupportedError>(
      "FM2711 UnsupportedError: trace: called inside a function that is being traced or compiled", 0,
      "\n  hint trace only the outermost function",
      [&] { trace([](const Tensor& a) { trace([](const Tensor& b) { return b; }, a); }, x); });
  Tensor base = copy(matrix(3, 2));
  expect_error<UnsupportedError>(
      "FM2713 UnsupportedError: trace: argument 0 is a view whose base is written\n  x    f32[2]", line = __LINE__ + 1,
      "\n  hint pass a copy() of it, or pass its base as well", [&] { trace([](Tensor row) { row += 1; }, base[0]); });
  const std::vector<double> untouched = values(base);
  trace([](Tensor row, const Tensor&) { row += 1; }, base[0], base);  // with the base it is known what happens
  EXPECT_EQ(values(base)[0], untouched[0] + 1);
  EXPECT_THROW(trace([](const Tensor& a) { return a + ones({3}); }, x), ShapeError);
  EXPECT_FALSE(thread_keys.included.has(Functionality::tracer));
}

struct Parts final : TensorPayload {
  std::string_view kind() const override { return "a tensor of parts"; }
  std::string_view hint() const override { return ""; }
};

TEST_P(Tracing, WrapperTensorsAreRefused) {
  const auto make = [] {
    const DispatchKeySet keys = DispatchKeySet(BackendKey::cpu) | Functionality::sparse_coo;
    return Tensor(TensorType{DType::f32, {2}}, keys, std::make_unique<Parts>());
  };
  const std::string text =
      "FM2712 UnsupportedError: trace: a tensor of parts cannot be part of a program\n  x    f32[2]";
  expect_error<UnsupportedError>(text, 0, "", [&] { trace([](const Tensor& a) { return a; }, make()); });
  expect_error<UnsupportedError>(text, 0, "", [&] { trace([&](const Tensor&) { return make(); }, ones({2})); });
}

TEST(TracingInCapture, IsRefused) {
  const ModeGuard compiled(Mode::compiled);
  auto f = compile([](const Tensor& a) { return trace([](const Tensor& b) { return b * 2; }, a).results[0]; });
  EXPECT_THROW(f(ones({2})), UnsupportedError);
  EXPECT_THAT((ones({2}) + 1).to_vector<double>(), ElementsAre(2, 2));
}

}  // namespace
}  // namespace fermata

// Functions that nodes of control flow own: which of them runs, what text says of them, and what outlives what.
#include <gmock/gmock.h>

#include <thread>

#include "fermata/control_flow.h"
#include "fermata/fermata.h"
#include "frontend/engine/graph_runner.h"
#include "ir/error.h"
#include "ir/graph.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OwnedFunctions : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, OwnedFunctions, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

Tensor times(const Tensor& x, double k, std::int64_t count = 3) {
  return fori_loop(
      0, count, [k](const Tensor&, const Tensor& s) { return s * k; }, x);
}
Tensor either(const Tensor& x, bool which, double k) {
  return cond(
      full({}, which), [k](const Tensor& a) { return a + k; }, [k](const Tensor& a) { return a - k; }, x);
}
Tensor grown(const Tensor& x, double k) {
  return while_loop([](const Tensor& a) { return all(a < 100); }, [k](const Tensor& a) { return a * k; }, x);
}

/// Plans are shared by calls of one structure, and each runs what its own node calls.
TEST_P(OwnedFunctions, CallsOfOneStructureRunTheirOwn) {
  const Tensor x = tensor({1.0, 2.0}, DType::f64);
  for (const double k : {2.0, 3.0, 5.0}) {
    EXPECT_THAT(values(times(x, k)), ElementsAre(k * k * k, 2 * k * k * k));
    EXPECT_THAT(values(either(x, true, k)), ElementsAre(1 + k, 2 + k));
    EXPECT_THAT(values(either(x, false, k)), ElementsAre(1 - k, 2 - k));
  }
  EXPECT_THAT(values(grown(tensor({1.0}), 10)), ElementsAre(100));
  EXPECT_THAT(values(grown(tensor({1.0}), 2)), ElementsAre(128));
  // Other ops, in a graph of the same structure.
  const auto once = [](const Tensor& a, Tensor (*f)(const Operand&)) {
    return fori_loop(
        0, 1, [f](const Tensor&, const Tensor& s) { return f(s); }, a);
  };
  const auto floored = [](const Operand& a) { return floor(a); };
  const auto negated = [](const Operand& a) { return negative(a); };
  const Tensor half = tensor({0.5, 1.5}, DType::f64);
  for (int run = 0; run < 3; ++run) {
    EXPECT_THAT(values(once(half, floored)), ElementsAre(0, 1));
    EXPECT_THAT(values(once(half, negated)), ElementsAre(-0.5, -1.5));
  }
}

TEST_P(OwnedFunctions, CallsOfOneSyncAreNotMerged) {
  const Tensor x = tensor({1.0, 2.0}, DType::f64);
  for (int run = 0; run < 3; ++run) {
    const Tensor a = times(x, 2), b = times(x, 3), c = times(x, 2, 1), d = either(x, true, 1), e = either(x, true, 2);
    sync({a, b, c, d, e});
    EXPECT_THAT(values(a), ElementsAre(8, 16));
    EXPECT_THAT(values(b), ElementsAre(27, 54));
    EXPECT_THAT(values(c), ElementsAre(2, 4));
    EXPECT_THAT(values(d), ElementsAre(2, 3));
    EXPECT_THAT(values(e), ElementsAre(3, 4));
  }
}

/// Neither the plan nor the code that is found again is of the functions that it was made with.
TEST_P(OwnedFunctions, WithTheirCodeOnDisk) {
  const Tensor x = tensor({1.0, 2.0}, DType::f64);
  for (const double k : {2.0, 3.0, 2.0}) {
    clear_compile_caches();
    for (int run = 0; run < 3; ++run)
      EXPECT_THAT(values(times(x, k) + either(x, true, k)), ElementsAre(k * k * k + 1 + k, 2 * k * k * k + 2 + k));
  }
}

/// Constants are operands, of every type and wherever they are made.
TEST_P(OwnedFunctions, ConstantsAreOperands) {
  const auto nested = [](double k) {
    return [k](const Tensor& x) {
      const auto outer = [k](const Tensor& s, const Tensor& u) {
        const Tensor table = tensor({k, 1.0}, DType::f64);
        const Tensor next = cond(
            sum(s) < 1000,
            [&](const Tensor& a) {
              return a * table + tensor({k, 2.0}, DType::f64);
            },
            [](const Tensor& a) { return a; }, s);
        return std::pair(next, next + u);
      };
      return scan(outer, x, ones({2}, DType::f64)).second;
    };
  };
  const Tensor x = tensor({1.0, 2.0}, DType::f64);
  for (const double k : {3.0, 4.0}) {
    const auto f = nested(k);
    auto compiled = compile([&](const Tensor& a) { return f(a); });
    const std::vector<double> expected{2 * k + 1, 5, (2 * k) * k + k + 1, 7};
    EXPECT_EQ(values(f(x)), expected);
    for (int run = 0; run < 3; ++run) EXPECT_EQ(values(compiled(x)), expected);
  }
}

/// Nothing is left of the call when a compiled function runs its steps again.
TEST_P(OwnedFunctions, OutliveTheirNodes) {
  auto compiled = compile([](const Tensor& x, double k) { return times(x, k) + either(x, true, k); });
  for (int run = 0; run < 3; ++run)
    for (const double k : {2.0, 3.0})
      EXPECT_THAT(values(compiled(tensor({1.0 + run}, DType::f64), k)), ElementsAre((1 + run) * (k * k * k + 1) + k));
}

TEST_P(OwnedFunctions, RunOnSeveralThreads) {
  auto compiled = compile([](const Tensor& x) { return times(x, 2) + grown(x, 3); });
  const Mode mode = GetParam();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const ModeGuard guard(mode);
      for (int run = 0; run < 25; ++run) {
        const double k = 2 + (run + t) % 3;
        const Tensor x = full({3}, 1.0, DType::f64);
        wrong[static_cast<std::size_t>(t)] += values(times(x, k))[0] != k * k * k;
        wrong[static_cast<std::size_t>(t)] += values(compiled(x))[0] != 8 + 243;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

/// A run of a text on inputs, the outputs one after the other.
std::vector<double> run(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<double> all;
  for (const Tensor& t : run_graph(graph, inputs))
    for (const double v : values(astype(t, DType::f64))) all.push_back(v);
  return all;
}

constexpr std::string_view kProgram = R"(%p = input : bool[]
%x = input : f64[2]
%y = cond(%p, %x) {seeded=false} : f64[2]
  when_true:
    %a = input : f64[2]
    %n = full(0) : i64[]
    %both = while_loop(%n, %a) {seeded=false} : u8[128]
      condition:
        %i = input : i64[]
        %s = input : f64[2]
        %0 = less(%i, 3) : bool[]
        return %0
      body:
        %i = input : i64[]
        %s = input : f64[2]
        %next = add(%i, 1) : i64[]
        %twice = multiply(%s, 2) : f64[2]
        return %next, %twice
    %r = unpack(%both) {offset=64} : f64[2]
    return %r
  when_false:
    %a = input : f64[2]
    return %a
%table = input : f64[3, 2]
%all = scan(%y, %table, %x) {seeded=false, carries=1, sequences=1, length=3, reverse=true} : u8[128]
  body:
    %c = input : f64[2]
    %row = input : f64[2]
    %w = input : f64[2]
    %m = add(%c, %row) : f64[2]
    %o = multiply(%m, %w) : f64[2]
    return %m, %o
%last = unpack(%all) {offset=0} : f64[2]
%outs = unpack(%all) {offset=64} : f64[3, 2]
return %last, %outs, %y
)";

TEST_P(OwnedFunctions, RunFromText) {
  const Graph graph = parse_graph(kProgram);
  const Tensor x = tensor({1.0, 10.0}, DType::f64), table = reshape(arange(6, DType::f64), {3, 2});
  for (int again = 0; again < 3; ++again) {
    EXPECT_EQ(run(graph, {full({}, true), x, table}), (std::vector<double>{14, 89, 14, 890, 14, 880, 12, 850, 8, 80}));
    EXPECT_EQ(run(graph, {full({}, false), x, table}), (std::vector<double>{7, 19, 7, 190, 7, 180, 5, 150, 1, 10}));
  }
  // As a value of a program that is traced, and compiled.
  auto compiled = compile([&](const Tensor& p, const Tensor& a) {
    return run_graph(graph, std::vector{p, a, table})[0];
  });
  for (const bool p : {true, false, true})
    EXPECT_EQ(values(compiled(full({}, p), x)), (p ? std::vector<double>{14, 89} : std::vector<double>{7, 19}));
}

TEST_P(OwnedFunctions, FromTextUnderTransforms) {
  const Graph graph = parse_graph(kProgram);
  const Tensor table = reshape(arange(6, DType::f64), {3, 2}), xs = tensor({{1.0, 2.0}, {3.0, 4.0}}, DType::f64);
  const auto last = [&](const Tensor& x) { return run_graph(graph, std::vector{full({}, true), x, table})[0]; };
  EXPECT_THAT(values(vmap(last)(xs)), ElementsAre(14, 25, 30, 41));
  EXPECT_THAT(message<UnsupportedError>([&] { grad([&](const Tensor& x) { return sum(last(x)); })(xs[0]); }),
              HasSubstr("FM2762 UnsupportedError: cond: gradients through a graph are not supported\n  x    f64[2]\n"));
  const Trace t = trace(last, xs[0]);
  EXPECT_THAT(to_string(t.graph), HasSubstr("\n  when_true:\n"));
  EXPECT_THAT(values(run_trace(t, std::vector{xs[1]})[0]), ElementsAre(30, 41));
}

TEST_P(OwnedFunctions, DrawFromTheStreamOfTheirCall) {
  const Graph graph = parse_graph(R"(%seed = input : f64[]
%x = input : f64[2]
%y = while_loop(%seed, %x) {seeded=true} : f64[2]
  condition:
    %s = input : f64[2]
    %0 = less(%s, 3) : bool[2]
    %1 = any(%0) {axes=[0], keepdims=false} : bool[]
    return %1
  body:
    %s = input : f64[2]
    %r = random_uniform(7640891576956012808, 0) : f64[2]
    %next = add(%s, %r) : f64[2]
    return %next
return %y
)");
  const Tensor x = zeros({2}, DType::f64);
  const std::vector<double> first = run(graph, {full({}, 0.25, DType::f64), x});
  EXPECT_EQ(run(graph, {full({}, 0.25, DType::f64), x}), first);
  EXPECT_NE(run(graph, {full({}, 0.5, DType::f64), x}), first);
  // Those of the public function, for the same seed.
  Tensor s = x;
  const ModeGuard compiled(Mode::compiled);
  manual_seed(4);
  const Tensor loop = while_loop([](const Tensor& a) { return any(a < 3); },
                                 [](const Tensor& a) { return a + rand({2}, DType::f64); }, x);
  manual_seed(4);
  EXPECT_EQ(run(graph, {rand({}, DType::f64), x}), values(loop));
}

/// What is recorded is shown with its functions, and means the same when it is read back.
TEST(OwnedFunctionsAsText, ReadBackToTheSameProgram) {
  const ModeGuard mode(Mode::compiled);
  const Tensor x = tensor({1.0, 2.0}, DType::f64), w = tensor({3.0}, DType::f64),
               table = reshape(arange(6, DType::f64), {3, 2}).sync();
  const auto program = [&] {
    const auto step = [=](const Tensor& s, const Tensor& u) {
      const Tensor next = cond(
          sum(s) < 40, [=](const Tensor& a) { return a * w + u; }, [](const Tensor& a) { return a - 1; }, s);
      return std::pair(next, next * 2);
    };
    const auto [last, all] = scan(step, x, table);
    return std::vector{last, all,
                       while_loop([](const Tensor& a) { return any(a < 50); },
                                  [](const Tensor& a) { return std::tuple(a + 7); }, last)};
  };
  const std::vector<Tensor> results = program();
  const std::string text = dump_ir(results);
  EXPECT_THAT(text, HasSubstr("\n  body:\n    %0 = input : f64[2]\n"));
  EXPECT_THAT(text, HasSubstr("\n      when_true:\n        %0 = input : f64[2]\n"));
  EXPECT_THAT(explain(results), HasSubstr("\n  condition:\n"));
  const Graph graph = parse_graph(text);
  EXPECT_EQ(to_string(parse_graph(to_string(graph))), to_string(graph));
  std::vector<Tensor> inputs;
  for (const GraphNode& n : graph.nodes)
    if (n.op == Op::input) inputs.push_back(n.shape.rank() == 2 ? table : n.shape[0] == 2 ? x : w);
  std::vector<double> wanted;
  for (const Tensor& t : results)
    for (const double v : values(t)) wanted.push_back(v);
  for (const Mode m : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(m);
    EXPECT_EQ(run(graph, inputs), wanted) << text;
  }
}

/// No text and no call gets a node without functions to run.
TEST_P(OwnedFunctions, AreNotMadeUp) {
  EXPECT_THAT(message<ParseError>([] {
                parse_graph("%0 = full(4702111234474983745) : i64[]\n%1 = while_loop(%0) : u8[32]\nreturn %1\n");
              }),
              HasSubstr("FM1504 ParseError: line 2, column 6: while_loop needs the attribute 'seeded'"));
  Graph graph = parse_graph(kProgram);
  for (GraphNode& n : graph.nodes) n.subgraphs = nullptr;
  EXPECT_THROW(verify(graph), InternalError);
  EXPECT_THAT(message<ValueError>([&] {
                run(graph, {full({}, true), ones({2}, DType::f64), ones({3, 2}, DType::f64)});
              }),
              HasSubstr("FM1766 ValueError: cond: is called without the functions that a node of it owns"));
}

}  // namespace
}  // namespace fermata

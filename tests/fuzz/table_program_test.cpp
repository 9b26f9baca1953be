// Random programs over the whole op table, in every way that they can run: compiled at once and again, value by value,
// without passes, by compile(fn), on several threads at a time, inside cond, batched, and differentiated. Eager mode
// says what is right. A program that differs is made small, and printed as IR and as C++.
//
// FERMATA_FUZZ_COUNT says how many programs, FERMATA_SEED which ones; program i of seed s is program 0 of seed s + i.
#include <fermata/fermata.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "passes/pipeline.h"
#include "runtime/plan_cache.h"
#include "tests/dispatch/every_way.h"
#include "tests/frontend/op_calls.h"
#include "tests/fuzz/table_program.h"
#include "tests/ir/seed.h"

namespace fermata {
namespace {

using testing::Order, testing::TableProgram;
using Inputs = std::vector<Tensor>;
using Function = std::function<std::vector<Tensor>(const Inputs&)>;

/// The code of an error, or numbers for each result.
struct Outcome {
  int error = 0;
  std::vector<Tensor> results;
};

Outcome outcome_of(const std::function<std::vector<Tensor>()>& run) {
  try {
    Outcome outcome{0, run()};
    sync(outcome.results);
    return outcome;
  } catch (const InternalError&) { throw; } catch (const Error& error) {
    return {error.code(), {}};
  }
}

std::vector<std::complex<double>> numbers_in(const Tensor& x) {
  if (is_complex(x.dtype())) return x.to_vector<std::complex<double>>();
  std::vector<std::complex<double>> numbers;
  for (const double v : astype(x, DType::f64).to_vector<double>()) numbers.emplace_back(v);
  return numbers;
}

/// Empty where two results are the same, or close.
std::string difference(const Tensor& want, const Tensor& got, double tolerance) {
  if (want.dtype() != got.dtype() || want.shape() != got.shape())
    return "is " + to_string(got.dtype(), got.shape()) + ", not " + to_string(want.dtype(), want.shape());
  if (is_quantized(want.dtype())) return {};
  if (tolerance == 0) {
    if (test::value_of(want) == test::value_of(got)) return {};
  }
  const auto a = numbers_in(want), b = numbers_in(got);
  double scale = 1;
  for (const auto& v : a)
    if (std::isfinite(std::abs(v))) scale = std::max(scale, std::abs(v));
  const auto is_same = [&](double x, double y) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return x == y ? tolerance > 0 || std::signbit(x) == std::signbit(y) : std::abs(x - y) <= tolerance * scale;
  };
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!is_same(a[i].real(), b[i].real()) || !is_same(a[i].imag(), b[i].imag()))
      return "element " + std::to_string(i) + " is " + std::to_string(b[i].real()) + ", not " +
             std::to_string(a[i].real());
  return {};
}
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 1e-2;
    case DType::bf16: return 8e-2;
    case DType::f64:
    case DType::c128: return 1e-10;
    default: return 1e-4;
  }
}

/// `least`: results that are the same to the bit in other ways need only be close in this one.
std::string difference(const TableProgram& program, const Outcome& want, const Outcome& got, bool close = false) {
  if (want.error != got.error)
    return "the error is FM" + std::to_string(got.error) + ", not FM" + std::to_string(want.error);
  const std::vector<Order> orders = testing::orders_of(program.graph);
  for (std::size_t i = 0; i < want.results.size(); ++i) {
    const Order order = orders[program.graph.outputs[i]];
    const DType dtype = want.results[i].dtype();
    if (order == Order::unknown || (close && order != Order::exact)) continue;
    const bool exact = order == Order::exact && !(close && (is_floating(dtype) || is_complex(dtype)));
    if (const std::string text = difference(want.results[i], got.results[i], exact ? 0 : tolerance_of(dtype));
        !text.empty())
      return "result " + std::to_string(i) + " " + text;
  }
  return {};
}

bool is_exact(const TableProgram& program) {
  return std::ranges::all_of(testing::orders_of(program.graph), [](Order o) { return o != Order::unknown; });
}

/// The gradients of the sum of all floating results with respect to the floating inputs.
std::vector<Tensor> gradients(const Function& f, const Inputs& given) {
  Inputs inputs, leaves;
  for (const Tensor& x : given) {
    inputs.push_back(x);
    if (is_floating(x.dtype())) {
      inputs.back() = copy(x).sync();
      inputs.back().requires_grad(true);
    }
    if (is_floating(x.dtype())) leaves.push_back(inputs.back());
  }
  Tensor total = full({}, 0, DType::f64);
  for (const Tensor& y : f(inputs))
    if (is_floating(y.dtype())) total = total + sum(astype(y, DType::f64));
  if (leaves.empty() || !total.requires_grad()) return {};
  total.backward();
  std::vector<Tensor> found;
  for (const Tensor& x : leaves) found.push_back(x.grad().defined() ? x.grad() : zeros(x.shape(), x.dtype()));
  return found;
}

std::map<std::string, std::size_t> runs;  // of each way that gave results

/// Says in which way a program differs from eager mode first, and how; empty if in none.
std::string check(const TableProgram& program) {
  const Function f = [&](const Inputs& inputs) { return program.run(inputs); };
  const auto run = [&] { return f(program.inputs); };
  Outcome want;
  {
    const ModeGuard eager(Mode::eager);
    want = outcome_of(run);
  }
  std::string what;
  const auto compare = [&](const std::string& way, const Outcome& got, bool close = false) {
    if (!what.empty()) return;
    if (const std::string text = difference(program, want, got, close); !text.empty()) what = way + ": " + text;
    runs[way] += got.error == 0 ? 1 : 0;
  };
  const ModeGuard mode(Mode::compiled);
  PlanCache::instance().clear();
  {
    const PolicyGuard policy(CompilePolicy::immediate);
    compare("compiled", outcome_of(run));
    compare("compiled again", outcome_of(run));
    compare("value by value", outcome_of([&] {
              std::vector<Tensor> results = run();
              for (std::size_t i = results.size(); i-- > 0;) results[i].sync();
              return results;
            }));
    set_disabled_passes({"fuse", "simplify"});
    PlanCache::instance().clear();
    compare("without passes", outcome_of(run));
    set_disabled_passes({});
    PlanCache::instance().clear();
    const Tensor yes = full({}, true, DType::boolean).sync();
    compare("inside cond", outcome_of([&] {
              return cond(
                  yes, [&](const Inputs& inputs) { return f(inputs); }, [&](const Inputs& inputs) { return f(inputs); },
                  program.inputs);
            }),
            true);
  }
  const PolicyGuard policy(CompilePolicy::second_sight);
  compare("first sight", outcome_of(run));
  std::vector<Outcome> on_threads(2);
  std::vector<std::thread> threads;
  for (Outcome& outcome : on_threads) threads.emplace_back([&] { outcome = outcome_of(run); });
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : on_threads) compare("on two threads", outcome);
  auto captured = compile(f);
  for (const char* way : {"compile(fn)", "a replay"})
    compare(way, outcome_of([&] { return captured(program.inputs); }));
  {
    const CallsGuard calls;
    auto called = compile(f);
    for (const char* way : {"compile(fn) by calls", "a replay by calls"})
      compare(way, outcome_of([&] { return called(program.inputs); }));
  }

  const bool draws =
      std::ranges::any_of(program.graph.nodes, [](const GraphNode& n) { return family(n.op) == Family::random; });
  if (want.error == 0 &&
      !draws) {  // each of a batch draws numbers of its own; which error is first is another question
    Outcome batched = outcome_of([&] {
      Inputs stacked;
      for (const Tensor& x : program.inputs) stacked.push_back(stack({x, x}, 0));
      std::vector<Tensor> results = vmap(f)(stacked);
      for (Tensor& y : results) y = select(y, 0, 1);
      return results;
    });
    if (batched.error == 0) compare("batched", batched, true);
  }
  if (!what.empty() || want.error != 0 || !is_exact(program)) return what;
  Outcome slopes;
  {
    const ModeGuard eager(Mode::eager);
    slopes = outcome_of([&] { return gradients(f, program.inputs); });
  }
  for (const char* way : {"gradients", "gradients again"}) {
    const Outcome got = outcome_of([&] { return gradients(f, program.inputs); });
    if (got.error != slopes.error)
      return std::string(way) + ": the error is FM" + std::to_string(got.error) + ", not FM" +
             std::to_string(slopes.error);
    for (std::size_t i = 0; i < slopes.results.size(); ++i)
      if (const std::string text =
              difference(slopes.results[i], got.results[i], 100 * tolerance_of(slopes.results[i].dtype()));
          !text.empty())
        return std::string(way) + ": that of input " + std::to_string(i) + " " + text;
    runs[way] += got.error == 0 ? 1 : 0;
  }
  return {};
}

/// The way of a difference: what the small program must still have.
std::string way_of(const std::string& what) { return what.substr(0, what.find(':')); }

std::string checked(const TableProgram& program) {
  try {
    return check(program);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return "exception: " + text.substr(0, text.find('\n'));
  }
}

TEST(TablePrograms, AreTheSameInEveryWay) {
  const std::uint64_t first = testing::test_seed(20261124);
  const char* const given = std::getenv("FERMATA_FUZZ_COUNT");
  const std::uint64_t count = given == nullptr ? 100 : std::strtoull(given, nullptr, 10);
  runs.clear();
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 random(seed);
    const TableProgram program = testing::random_table_program(random, 2 + random() % 8);
    const std::string what = checked(program);
    if (what.empty()) continue;
    const TableProgram small = testing::reduced(
        program, [&](const TableProgram& smaller) { return way_of(checked(smaller)) == way_of(what); });
    ADD_FAILURE() << what << "\nof the program of FERMATA_SEED=" << seed << " FERMATA_FUZZ_COUNT=1, which is in short ("
                  << checked(small) << ")\n"
                  << to_string(small.graph) << "\n"
                  << testing::to_cpp(small);
    if (given == nullptr) return;
  }
  for (const auto& [way, times] : runs) std::printf("  %-16s %zu\n", way.c_str(), times);
  if (count < 100) return;
  for (const char* way : {"compiled", "inside cond", "batched", "compile(fn)", "gradients"})
    EXPECT_GT(runs[way], count / 10);
}

/// What is left of a program that fails because of one call is that call.
TEST(TablePrograms, AreMadeSmall) {
  std::mt19937_64 random(3);
  TableProgram program = testing::random_table_program(random, 6);
  std::size_t with_op = 0;
  for (const GraphNode& n : program.graph.nodes) with_op += n.op != Op::input ? 1 : 0;
  ASSERT_GT(with_op, 3u);
  const Op wanted = program.graph.nodes[program.graph.outputs.back()].op;
  const TableProgram small = testing::reduced(program, [&](const TableProgram& p) {
    return std::ranges::any_of(p.graph.nodes, [&](const GraphNode& n) { return n.op == wanted; });
  });
  std::size_t left = 0;
  for (const GraphNode& n : small.graph.nodes) left += n.op != Op::input ? 1 : 0;
  EXPECT_EQ(left, 1u) << to_string(small.graph);
  EXPECT_NE(testing::to_cpp(small).find("parse_graph"), std::string::npos);
}

}  // namespace
}  // namespace fermata

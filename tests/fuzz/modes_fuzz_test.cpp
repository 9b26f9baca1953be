// Random programs over built-in and custom operators, in every way that they can run: with tags, effects, kernels that
// replace built-in ones, several results, writes in place, kernels that record and compute, and threads. Values and the
// sequence of effects are those of eager mode.
//
// FERMATA_FUZZ_COUNT says how many programs, FERMATA_SEED which ones; program i of seed s is program 0 of seed s + i.
#include <fermata/fermata.h>
#include <fermata/library.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "tests/dispatch/every_way.h"
#include "tests/ir/seed.h"

namespace fermata {
namespace {

using Kind = Library::Kind;

constexpr std::int64_t kRows = 3, kColumns = 4;

/// What effects leave: which call, and the first element that it saw.
struct Event {
  std::int64_t call;
  double seen;
};
std::mutex events_mutex;
std::vector<Event> events;

/// What a kernel has kept of its arguments, and what it saw in them.
std::vector<std::pair<Tensor, std::vector<float>>> kept;

double first_of(const Tensor& x) { return astype(x, DType::f64).reshape({-1})[0].item<double>(); }
Tensor like(const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); }

struct Operators {
  Library def{Kind::definition, "fz"}, cpu{Kind::implementation, "fz", "CPU"}, meta{Kind::implementation, "fz", "Meta"};
  Operators() {
    def.def("pure scale(Tensor x, float by) -> Tensor")
        .def("log(Tensor x, int call) -> Tensor")
        .def("tell(Tensor x, int call) -> ()");
    def.def("random noise(Tensor x) -> Tensor").def("pure parts(Tensor x) -> (Tensor, Tensor)");
    def.def("pure add_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
        .def("pure inner(Tensor x) -> Tensor")
        .def("opaque(Tensor x) -> Tensor")
        .def("keep(Tensor x) -> Tensor");
    // Under a key of the thread it means something else.
    cpu.impl("scale", [](const Tensor& x, double by) {
      return x * (thread_keys.included.has(Functionality::user2) ? -by : by);
    });
    cpu.impl("keep", [](const Tensor& x) {
      const Tensor f32 =
          astype(x, DType::f32).detach();  // in eager mode x is the tensor of the caller, who may write it
      const std::lock_guard lock(events_mutex);
      kept.emplace_back(f32, f32.to_vector<float>());
      return x - 0.5;
    });
    cpu.impl("log", [](const Tensor& x, std::int64_t call) {
      note(x, call);
      return x + 1;
    });
    cpu.impl("tell", [](const Tensor& x, std::int64_t call) { note(x, call); });
    cpu.impl("noise", [](const Tensor& x) { return randn(x.shape()); });
    cpu.impl("parts", [](const Tensor& x) { return std::tuple<Tensor, Tensor>(x - 1, maximum(x, 0)); });
    cpu.impl("add_", [](Tensor& x, const Tensor& y) {
      x += y;
      return x;
    });
    cpu.impl("inner", [](const Tensor& x) {
      const ModeGuard compiled(Mode::compiled);
      const Tensor y = tanh(x) * 2, z = y + x;
      return full(x.shape(), first_of(z)).astype(x.dtype()) + z * 0.5;
    });
    cpu.impl("opaque", [](const Tensor& x) { return abs(x) + 0.25; });
    meta.impl("scale", [](const Tensor& x, double) { return like(x); });
    meta.impl("log", [](const Tensor& x, std::int64_t) { return like(x); });
    meta.impl("parts", [](const Tensor& x) { return std::tuple<Tensor, Tensor>(like(x), like(x)); });
    for (const char* name : {"noise", "inner", "keep"}) meta.impl(name, &like);
  }
  static void note(const Tensor& x, std::int64_t call) {
    const double seen = first_of(x);
    const std::lock_guard lock(events_mutex);
    events.push_back({call, seen});
  }
};

template <class S> auto op(const char* name) { return OperatorHandle::find(name).typed<S>(); }

/// A program: a list of instructions over a growing list of matrices [3, 4].
struct RandomProgram {
  struct Instruction {
    unsigned kind, a, b;
    double number;
    std::int64_t size;
  };
  std::vector<Instruction> instructions;
  bool replaces_tanh = false, replaces_sum = false, in_region = false;

  static constexpr unsigned kKinds = 22;
  explicit RandomProgram(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<unsigned>(random() % n); };
    const unsigned count = 3 + below(10);
    for (unsigned i = 0; i < count; ++i)
      instructions.push_back({below(kKinds), below(64), below(64), 0.25 * (1 + below(6)), 1 + below(3)});
    replaces_tanh = below(3) == 0, replaces_sum = below(4) == 0, in_region = below(6) == 0;
  }

  /// Calls an operator without a Meta kernel, which no compiled function may.
  bool runs_at_once() const {
    return std::ranges::any_of(instructions, [](const Instruction& i) { return i.kind == kKinds - 1; });
  }

  std::vector<Tensor> operator()(const Tensor& x0, const Tensor& x1) const {
    std::vector<Tensor> v{x0 * 1, x0 + 1};
    std::optional<AutocastGuard> region;
    if (in_region) region.emplace();
    std::int64_t call = 0;
    for (const Instruction& i : instructions) {
      const Tensor a = v[i.a % v.size()], b = v[i.b % v.size()];
      ++call;
      switch (i.kind) {
        case 0: v.push_back(a + b); break;
        case 1: v.push_back(a * i.number); break;
        case 2: v.push_back(tanh(a)); break;
        case 3: v.push_back(a - sum(b, {1}, true) * 0.125); break;
        case 4: v.push_back(where(a > 0, a, b)); break;
        case 5: v.push_back(concat({a.slice(0, 0, 1), b.slice(0, 1, kRows)}, 0)); break;
        case 6: v.push_back(softmax(a, 1)); break;
        case 7: v.push_back(sort(a, 1)); break;
        case 8: v.push_back(astype(matmul(a, b.mT()), DType::f32).slice(1, 0, 1) + a * 0.5); break;
        case 9: v.push_back(op<Tensor(const Tensor&, double)>("fz::scale")(a, i.number)); break;
        case 10: v.push_back(op<Tensor(const Tensor&, std::int64_t)>("fz::log")(a, call)); break;
        case 11: op<void(const Tensor&, std::int64_t)>("fz::tell")(a, call); break;
        case 12: v.push_back(op<Tensor(const Tensor&)>("fz::noise")(a)); break;
        case 13: {
          const auto [low, high] = op<std::tuple<Tensor, Tensor>(const Tensor&)>("fz::parts")(a);
          v.push_back(low), v.push_back(high);
          break;
        }
        case 14: op<Tensor(const Tensor&, const Tensor&)>("fz::add_")(a, b * 0.5); break;
        case 15: v.push_back(op<Tensor(const Tensor&)>("fz::inner")(a)); break;
        case 16: a[i.size % kRows].assign(b[0] * i.number); break;
        case 17: v.push_back(randn({kRows, kColumns}) * 0.25 + a); break;
        case 18: v.push_back(a + fit(flatnonzero(b, i.size))); break;
        case 19: v.push_back(a.mT().reshape({kRows, kColumns}) - x1); break;
        case 20: v.push_back(op<Tensor(const Tensor&)>("fz::keep")(a)); break;
        default: v.push_back(op<Tensor(const Tensor&)>("fz::opaque")(a)); break;
      }
    }
    return v;
  }
  static Tensor fit(const Tensor& positions) { return sum(astype(positions, DType::f32)) * 0.01; }
};

struct Outcome {
  std::vector<double> numbers;
  std::vector<Event> effects;
};

template <class F> Outcome outcome_of(F&& run) {
  events.clear(), kept.clear();
  manual_seed(7);
  Outcome outcome;
  const std::vector<Tensor> values = run();
  sync(values);
  outcome.effects = events;
  for (const Tensor& t : values) {
    const std::vector<double> each = astype(t, DType::f64).to_vector<double>();
    outcome.numbers.insert(outcome.numbers.end(), each.begin(), each.end());
  }
  for (const auto& [argument, seen] : kept)
    EXPECT_EQ(argument.template to_vector<float>(), seen) << "an argument that a kernel has kept";
  EXPECT_EQ(events.size(), outcome.effects.size()) << "effects are over once values have been computed";
  return outcome;
}

/// Products may be contracted and bf16 rounds where they are; nothing else differs.
bool is_close(double a, double b, double tolerance) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance * (1 + std::abs(a) + std::abs(b));
}

std::string difference(const Outcome& got, const Outcome& wanted, double tolerance) {
  if (got.numbers.size() != wanted.numbers.size()) return "another number of values";
  for (std::size_t i = 0; i < got.numbers.size(); ++i)
    if (!is_close(got.numbers[i], wanted.numbers[i], tolerance))
      return "value " + std::to_string(i) + " is " + std::to_string(got.numbers[i]) + ", not " +
             std::to_string(wanted.numbers[i]);
  if (got.effects.size() != wanted.effects.size())
    return std::to_string(got.effects.size()) + " effects, not " + std::to_string(wanted.effects.size());
  for (std::size_t i = 0; i < got.effects.size(); ++i)
    if (got.effects[i].call != wanted.effects[i].call ||
        !is_close(got.effects[i].seen, wanted.effects[i].seen, tolerance))
      return "effect " + std::to_string(i) + " is that of call " + std::to_string(got.effects[i].call) + " on " +
             std::to_string(got.effects[i].seen) + ", not of call " + std::to_string(wanted.effects[i].call) + " on " +
             std::to_string(wanted.effects[i].seen);
  return {};
}

/// Runs one program in every way; what differs first, or nothing. In the second round the same structures have other
/// kernels, and other keys and regions around them.
std::string check(std::uint64_t seed, bool second_round) {
  RandomProgram program(seed);
  program.in_region = program.in_region != second_round;
  std::optional<KeyGuard> key;
  if (second_round) key.emplace(Functionality::user2, DispatchKeySet());
  const double bound = second_round ? 0.25 : 0.5;
  std::mt19937_64 random(seed ^ 0x5eed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(2 * kRows * kColumns);
  for (float& n : numbers) n = normal(random);
  const Tensor x0 =
      tensor(std::vector<float>(numbers.begin(), numbers.begin() + kRows * kColumns), {kRows, kColumns}).sync();
  const Tensor x1 =
      tensor(std::vector<float>(numbers.begin() + kRows * kColumns, numbers.end()), {kRows, kColumns}).sync();

  Library replacements(Kind::implementation, "fermata", "CPU");
  if (program.replaces_tanh)
    replacements.impl("tanh", [bound](const Operand& x) { return minimum(maximum(x.tensor(), -bound), bound); },
                      {.replaces = true});
  if (program.replaces_sum)
    replacements.impl_boxed(
        "sum",
        [](const Call&, Stack& stack) {
          const Tensor x = stack[0].as<std::vector<Tensor>>()[0];
          stack.assign(1, max(x, {1}, true));
        },
        {.variant = "max",
         .fits = [](const Stack& stack) { return stack[0].as<std::vector<Tensor>>()[0].rank() == 2; },
         .fits_text = "a matrix",
         .cost = -1});

  const auto run = [&] { return program(x0, x1); };
  Outcome wanted;
  {
    const ModeGuard eager(Mode::eager);
    wanted = outcome_of(run);
  }
  const double tolerance = program.in_region ? 0.05 : 2e-5;
  std::string what;
  const auto compare = [&](const char* way, const Outcome& got) {
    if (!what.empty()) return;
    if (const std::string found = difference(got, wanted, tolerance); !found.empty())
      what = std::string(way) + ": " + found;
  };
  {
    const PolicyGuard policy(CompilePolicy::immediate);
    compare("compiled at once", outcome_of(run));
  }
  {
    const PolicyGuard policy(CompilePolicy::never);
    compare("never compiled", outcome_of(run));
  }
  const PolicyGuard policy(CompilePolicy::second_sight);
  compare("at a sight", outcome_of(run));
  compare("at another sight", outcome_of(run));
  compare("on another thread", outcome_of([&] {
            std::vector<Tensor> values;
            std::thread([&, keys = thread_keys] {
              thread_keys = keys;
              manual_seed(7);
              values = run();
              sync(values);
            }).join();
            return values;
          }));
  if (program.runs_at_once()) return what;
  const Tensor hidden = x1 * 1;  // pending when the function is captured
  auto captured = compile([&](const Tensor& a) { return program(a, hidden); });
  for (const char* call : {"compile(fn)", "the second call", "a replay"})
    compare(call, outcome_of([&] { return captured(x0); }));
  const CallsGuard calls;
  auto called = compile([&](const Tensor& a) { return program(a, hidden); });
  for (const char* call : {"compile(fn) by calls", "a replay by calls"})
    compare(call, outcome_of([&] { return called(x0); }));
  return what;
}

TEST(ModesFuzz, ARandomProgramIsTheSameInEveryWay) {
  const Operators operators;
  const std::uint64_t first = testing::test_seed(20261122);
  const char* const given = std::getenv("FERMATA_FUZZ_COUNT");
  const std::uint64_t count = given != nullptr                             ? std::strtoull(given, nullptr, 10)
                              : std::getenv("FERMATA_THOROUGH") != nullptr ? 5000
                                                                           : 150;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::string what;
    try {
      what = check(seed, false);
      if (what.empty()) what = check(seed, true);
    } catch (const std::exception& error) { what = error.what(); }
    ASSERT_EQ(what, "") << "FERMATA_SEED=" << seed << " FERMATA_FUZZ_COUNT=1";
  }
}

}  // namespace
}  // namespace fermata
